//go:build unix && !linux

package testenv

import "syscall"

// Attributes makes a program run as an account, its own if it is nil.
func Attributes(as *Account, _ syscall.Signal) *syscall.SysProcAttr {
	if as == nil {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(as.UID), Gid: uint32(as.GID)}}
}
