package testenv

import "net"

// FreePort returns a port of 127.0.0.1 that nobody listened on a moment ago.
func FreePort() (uint16, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).AddrPort().Port(), nil
}
