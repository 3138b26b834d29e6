package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/sqlimit/limiter/internal/testenv"
)

// Pgpool is the Pgpool-II of this machine in front of a database. It pools sessions.
type Pgpool struct {
	*Daemon
	// DSN is a URL of the database behind it.
	DSN string

	program string
	args    []string
}

// FindPgpool returns the path of the program.
func FindPgpool() (string, error) { return findPooler("pgpool") }

// NewPgpool makes a Pgpool-II that does not run yet in front of the database of dsn. Settings are
// those of pgpool.conf: "num_init_children = 8". A later setting replaces an earlier one of the same
// name.
func NewPgpool(program, dsn string, settings ...string) (*Pgpool, error) {
	target, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	port, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	control, err := testenv.FreePort()
	if err != nil {
		return nil, err
	}
	// SIGQUIT ends all of its processes at once. After SIGKILL the children would go on.
	server, err := New("", "pgpool", syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	p := &Pgpool{Daemon: server, DSN: URL("127.0.0.1", port, target.User, target.Password, target.Database), program: program}
	if err := p.configure(target, port, control, settings); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// configure writes the files of the pooler. Every client on the loopback interface is accepted as the
// user of target, and the pooler has the password for the server.
func (p *Pgpool) configure(target *pgx.ConnConfig, port, control uint16, settings []string) error {
	quote := func(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
	passwords, err := p.Write("pool_passwd", target.User+":TEXT"+target.Password+"\n")
	if err != nil {
		return err
	}
	clients, err := p.Write("pool_hba.conf", "host all all 127.0.0.1/32 trust\n")
	if err != nil {
		return err
	}
	controllers, err := p.Write("pcp.conf", "")
	if err != nil {
		return err
	}
	config, err := p.Write("pgpool.conf", fmt.Sprintf(`backend_clustering_mode = 'streaming_replication'
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
%[10]s
`, port, quote(p.Dir), control, quote(p.Dir+"/pid"), quote(target.Host), target.Port, quote(passwords),
		quote(target.User), quote(target.Database), strings.Join(settings, "\n")))
	p.args = []string{"-n", "-f", config, "-a", clients, "-F", controllers}
	return err
}

// Start starts the pooler and waits until it answers.
func (p *Pgpool) Start(ctx context.Context) error {
	_ = os.Remove(p.Dir + "/pid") // an earlier run may have left it
	err := p.Launch(p.program, p.args...)
	if err == nil {
		err = p.Await(ctx, func(ctx context.Context) error { return Answers(ctx, p.DSN) })
	}
	if err != nil {
		output, _ := p.Log() // What there is of it explains the error.
		return fmt.Errorf("pgpool: %w\n%s", err, output)
	}
	return nil
}
