//go:build unix && !linux

package dbtest

import "syscall"

// processAttributes makes a program run as account.
func processAttributes(as *account, _ syscall.Signal) *syscall.SysProcAttr {
	if as == nil {
		return nil
	}
	return &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)},
	}
}
