//go:build !unix

package dbtest

import "syscall"

// processAttributes has nothing to say where there is no root.
func processAttributes(*account, syscall.Signal) *syscall.SysProcAttr { return nil }
