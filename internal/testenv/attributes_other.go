//go:build !unix

package testenv

import "syscall"

// Attributes has nothing to say where there is no root.
func Attributes(*Account, syscall.Signal) *syscall.SysProcAttr { return nil }
