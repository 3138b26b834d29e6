package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlimit/limiter"
)

// The exit codes. Scripts depend on them: docs/cli.md lists them.
const (
	exitOK          = 0
	exitFailed      = 1   // any other failure
	exitUsage       = 2   // a wrong command, flag or argument
	exitUnreachable = 3   // the database does not answer
	exitSetup       = 4   // tables, migrations or privileges are missing
	exitAttention   = 5   // the command worked and found something to do
	exitInterrupted = 130 // by Ctrl-C or SIGTERM
)

// usageError is a wrong command, flag or argument.
type usageError struct{ error }

// Unwrap returns the cause.
func (e usageError) Unwrap() error { return e.error }

// errAttention means that the command worked and found something to do, and has said so.
var errAttention = errors.New("something needs attention")

// errInterrupted means that the user ended the command, by Ctrl-C for example.
var errInterrupted = errors.New("interrupted")

// saidError is an error that the output of the command names.
type saidError struct{ error }

// Unwrap returns the cause.
func (e saidError) Unwrap() error { return e.error }

// exitCode returns the exit code for the error of a command.
func exitCode(ctx context.Context, err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errAttention):
		return exitAttention
	case ctx.Err() != nil, errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &usage), isInput(err), errors.Is(err, limiter.ErrInvalid), errors.Is(err, limiter.ErrExceedsCapacity):
		return exitUsage
	case isSetup(err):
		return exitSetup
	case isUnreachable(err):
		return exitUnreachable
	}
	return exitFailed
}

// isInput reports whether the database refused an argument that is no text.
func isInput(err error) bool {
	var server *pgconn.PgError
	return errors.As(err, &server) && server.Code == "22021"
}

// isSetup reports whether an operator must change the database's setup.
func isSetup(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) || len(server.Code) < 2 {
		return errors.Is(err, limiter.ErrMisconfigured)
	}
	switch server.Code[:2] {
	case "28", "3D", "3F", "42": // password, no such database or schema, tables and privileges
		return true
	}
	return errors.Is(err, limiter.ErrMisconfigured)
}

// isUnreachable reports whether the database does not answer.
func isUnreachable(err error) bool {
	var connect *pgconn.ConnectError
	var network *net.OpError // not net.Error, which also matches the errors of files
	var name *net.DNSError
	var server *pgconn.PgError
	if errors.As(err, &server) && len(server.Code) >= 2 {
		switch server.Code[:2] {
		case "08", "53", "57": // the connection, no free connection, shutting down
			return true
		}
	}
	return errors.As(err, &connect) || errors.As(err, &network) || errors.As(err, &name) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrNotExist) || errors.Is(err, context.DeadlineExceeded)
}
