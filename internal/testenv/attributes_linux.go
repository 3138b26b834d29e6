package testenv

import "syscall"

// Attributes makes a program run as an account, its own if it is nil, and end with the tests even
// if these are killed.
func Attributes(as *Account, quit syscall.Signal) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Pdeathsig: quit}
	if as != nil {
		attributes.Credential = &syscall.Credential{Uid: uint32(as.UID), Gid: uint32(as.GID)}
	}
	return attributes
}
