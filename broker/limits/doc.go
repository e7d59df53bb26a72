// Package limits bounds what clients may use of the broker, so that one of them cannot keep others
// from being served: connections, password checks at a time, messages and bytes per second, and
// lines in the log. It does not know MQTT; package broker calls it.
//
//	limiter := limits.New(limits.Config{})
//	conn, err := limiter.Accept(socket.RemoteAddr(), func() { socket.Close() })
//	defer conn.Close()
//	err = limiter.Authenticate(ctx, conn.Address(), "c1", func() bool { return checkPassword() })
//	err = conn.LogIn(identity)
//	for {
//		header := readHeader()
//		sleep(limiter.Take(identity, 1, header.PacketSize()))
//		handle(readPacket(header))
//	}
//
// Decisions are functions of values, the current time among them.
package limits
