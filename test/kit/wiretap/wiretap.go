// Package wiretap stands between clients and a server, and shows what goes through, both ways.
//
//	tap, err := wiretap.Start(server, &counter)
//	dial(tap.Addr)
//	err = tap.Close()
package wiretap

import (
	"io"
	"net"
	"sync"
)

// Tap forwards TCP connections.
type Tap struct {
	// Addr is its own host:port on loopback.
	Addr string

	listener net.Listener
	to       string
	seen     io.Writer
	open     sync.WaitGroup
}

// Start forwards connections to the address to. All bytes of all connections are written to seen, from several
// goroutines at a time; an error of seen ends the connection. Close must be called.
func Start(to string, seen io.Writer) (*Tap, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &Tap{Addr: listener.Addr().String(), listener: listener, to: to, seen: seen}
	t.open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			t.open.Go(func() { t.forward(client) })
		}
	})
	return t, nil
}

// Close accepts no more connections, and returns once those that are open have ended: clients or server end
// them.
func (t *Tap) Close() error {
	err := t.listener.Close()
	t.open.Wait()
	return err
}

func (t *Tap) forward(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", t.to)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(io.MultiWriter(server, t.seen), client); _ = server.Close() })
	both.Go(func() { _, _ = io.Copy(io.MultiWriter(client, t.seen), server); _ = client.Close() })
	both.Wait()
}
