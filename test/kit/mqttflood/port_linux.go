package mqttflood

import "syscall"

// bindAddressNoPort is IP_BIND_ADDRESS_NO_PORT of ip(7).
const bindAddressNoPort = 24

// chooseLate lets the kernel choose a port when the socket connects. When it is bound, the kernel looks for a port that
// no socket of the address has, and with thousands of them spends more time on that than the broker on the connection.
func chooseLate(_, _ string, raw syscall.RawConn) error {
	var option error
	if err := raw.Control(func(fd uintptr) { option = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, bindAddressNoPort, 1) }); err != nil {
		return err
	}
	return option
}
