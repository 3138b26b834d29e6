package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/testenv"
)

// Pooler is a pooler of this machine in front of a database. It accepts every client on the loopback
// interface as the user of that database.
type Pooler struct {
	*Daemon
	// DSN is a URL of the database behind it.
	DSN string

	program string
	args    []string
	ready   func(ctx context.Context) error
}

// FindPooler returns the path of a program: "pgbouncer" or "pgpool".
func FindPooler(name string) (string, error) {
	program, err := exec.LookPath(name)
	if err == nil {
		return program, nil
	}
	// Debian installs poolers where not every user's PATH leads.
	debian := "/usr/sbin/" + name
	if _, missing := os.Stat(debian); missing != nil {
		return "", err
	}
	return debian, nil
}

// newPooler makes a Pooler whose files configure writes. It does not run yet.
func newPooler(program, dsn string, quit syscall.Signal, configure func(p *Pooler, target *pgx.ConnConfig, port uint16) error) (*Pooler, error) {
	target, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	port, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	server, err := New("", filepath.Base(program), quit)
	if err != nil {
		return nil, err
	}
	p := &Pooler{Daemon: server, DSN: URL("127.0.0.1", port, target.User, target.Password, target.Database), program: program}
	if err := configure(p, target, port); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Start starts the pooler and waits until it answers.
func (p *Pooler) Start(ctx context.Context) error {
	_ = os.Remove(p.Dir + "/pid") // an earlier run may have left it
	err := p.Launch(p.program, p.args...)
	if err == nil {
		err = p.Await(ctx, p.ready)
	}
	if err != nil {
		output, _ := p.Log() // What there is of it explains the error.
		return fmt.Errorf("%s: %w\n%s", filepath.Base(p.program), err, output)
	}
	return nil
}

// quote quotes a value for the files of poolers.
func quote(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }

// NewPgBouncer makes a PgBouncer that does not run yet in front of the database of dsn. It pools
// transactions. Settings are those of pgbouncer.ini: "default_pool_size = 2". A setting replaces the
// default of the same name.
func NewPgBouncer(program, dsn string, settings ...string) (*Pooler, error) {
	// PgBouncer has nothing to save, so SIGKILL stops it.
	return newPooler(program, dsn, syscall.SIGKILL, func(p *Pooler, target *pgx.ConnConfig, port uint16) error {
		password := ""
		if target.Password != "" { // PgBouncer rejects an empty one
			password = "password=" + quote(target.Password)
		}
		// This works with any authentication that the server asks for, without a list of users.
		ini, err := p.Write("pgbouncer.ini", fmt.Sprintf(`[databases]
* = host=%s port=%d user=%s %s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
server_tls_sslmode = prefer
%s
`, quote(target.Host), target.Port, quote(target.User), password, port, strings.Join(settings, "\n")))
		p.args = []string{ini}
		p.ready = func(ctx context.Context) error { // its own database needs no server
			conn, err := pgx.Connect(ctx, URL("127.0.0.1", port, target.User, target.Password, "pgbouncer"))
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		}
		return err
	})
}

// NewPgpool makes a Pgpool-II that does not run yet in front of the database of dsn. It pools sessions,
// and has the password for the server.
func NewPgpool(program, dsn string) (*Pooler, error) {
	control, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	// SIGQUIT ends all of its processes at once. After SIGKILL the children would go on.
	return newPooler(program, dsn, syscall.SIGQUIT, func(p *Pooler, target *pgx.ConnConfig, port uint16) error {
		passwords, err1 := p.Write("pool_passwd", target.User+":TEXT"+target.Password+"\n")
		clients, err2 := p.Write("pool_hba.conf", "host all all 127.0.0.1/32 trust\n")
		controllers, err3 := p.Write("pcp.conf", "")
		config, err4 := p.Write("pgpool.conf", fmt.Sprintf(`backend_clustering_mode = 'streaming_replication'
listen_addresses = '127.0.0.1'
port = %d
socket_dir = %[2]s
pcp_listen_addresses = '127.0.0.1'
pcp_port = %d
pcp_socket_dir = %[2]s
pid_file_name = %[4]s
logdir = %[2]s
backend_hostname0 = %[5]s
backend_port0 = %d
backend_flag0 = 'DISALLOW_TO_FAILOVER'
enable_pool_hba = on
pool_passwd = %[7]s
num_init_children = 32
max_pool = 1
load_balance_mode = off
sr_check_period = 0
sr_check_user = %[8]s
sr_check_database = %[9]s
`, port, quote(p.Dir), control, quote(p.Dir+"/pid"), quote(target.Host), target.Port, quote(passwords),
			quote(target.User), quote(target.Database)))
		p.args = []string{"-n", "-f", config, "-a", clients, "-F", controllers}
		p.ready = func(ctx context.Context) error { return Answers(ctx, p.DSN) }
		return errors.Join(err1, err2, err3, err4)
	})
}
