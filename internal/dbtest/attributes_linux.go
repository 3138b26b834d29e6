package dbtest

import "syscall"

// processAttributes makes a program run as account, and end with the tests even if these are killed.
func processAttributes(as *account, quit syscall.Signal) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Pdeathsig: quit}
	if as != nil {
		attributes.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attributes
}
