package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// checkPooler finds out whether a pooler stands between this program and the server, and whether the
// query mode of the URL works there. Applications that use the same URL have the same mode.
func (db *DB) checkPooler(ctx context.Context, r *report) {
	config, err := pgx.ParseConfig(db.URL) // as an application connects, not as this program does
	if err != nil {
		r.failed("query mode", err)
		return
	}
	mode := config.DefaultQueryExecMode
	pooled, transactions, err := probe(ctx, config)
	const advice = "add default_query_exec_mode=exec to the URL of the application"
	var server *pgconn.PgError
	anywhere := mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol
	full := pooled && errors.Is(err, context.DeadlineExceeded)
	switch {
	case errors.Is(err, errNoTransactions):
		r.bad("query mode", "set pool_mode = transaction", "the pooler is in statement mode, and limiters need transactions")
	case full && anywhere:
		r.ok("query mode", "%s works behind this pooler, which has few server connections", mode)
	case full:
		r.bad("query mode", advice, "the pooler has too few server connections to find out whether mode %s works there", mode)
	case errors.As(err, &server) && (server.Code == "26000" || server.Code == "42P05" || server.Code == "08P01"):
		r.bad("query mode", advice, "a pooler in transaction mode loses the prepared statements of mode %s: %s", mode, server.Message)
	case err != nil:
		r.failed("query mode", err)
	case transactions && mode == pgx.QueryExecModeDescribeExec:
		r.bad("query mode", advice, "mode %s sends two messages, which a pooler in transaction mode may give to two servers", mode)
	case transactions:
		r.ok("query mode", "%s works behind this pooler, which is in transaction mode", mode)
	case pooled:
		r.ok("query mode", "%s works behind this pooler", mode)
	default:
		r.ok("query mode", "%s; there is no pooler", mode)
	}
}

// probeTimeout is how long the pooler may take to give a server process to each of the connections.
const probeTimeout = 3 * time.Second

// errNoTransactions means that a pooler is in statement mode.
var errNoTransactions = errors.New("the pooler allows no transactions")

// probe opens several connections to find out what the pooler does. While other connections hold server
// processes, a pooler in transaction mode gives the first connection another process. A prepared
// statement of the first connection then shows whether the pooler still knows it.
func probe(ctx context.Context, config *pgx.ConnConfig) (pooled, transactions bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	connect := func() (*pgx.Conn, error) {
		conn, err := pgx.ConnectConfig(ctx, config.Copy())
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		return conn, nil
	}
	conn, err := connect()
	if err != nil {
		return false, false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ask := func() (pid int64, err error) {
		err = conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()::int8 + $1::int8", int64(0)).Scan(&pid)
		return pid, err
	}
	first, err := ask()
	if err != nil {
		return false, false, err
	}
	if pooled = first != int64(conn.PgConn().PID()); !pooled { // a pooler reports process ids of its own
		return false, false, nil
	}
	var holders []*pgx.Conn
	defer func() {
		for _, h := range holders {
			_ = h.Close(context.WithoutCancel(ctx))
		}
	}()
	for range 3 {
		holder, err := connect()
		if err != nil {
			return true, false, err
		}
		holders = append(holders, holder)
		// The simple protocol works behind every pooler.
		if _, err := holder.PgConn().Exec(ctx, "BEGIN; SELECT 1").ReadAll(); err != nil {
			var server *pgconn.PgError
			if errors.As(err, &server) && server.Code == "08P01" {
				err = errNoTransactions
			}
			return true, false, err
		}
		if pid, err := ask(); err != nil || pid != first {
			return true, true, err
		}
	}
	return true, false, nil
}
