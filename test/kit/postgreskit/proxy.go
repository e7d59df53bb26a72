package postgreskit

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// Proxy forwards connections to a Server until it hangs.
type Proxy struct {
	server *Server
	dir    string

	mu    sync.Mutex
	hangs chan struct{} // closed while nothing hangs
}

// Proxy starts a proxy, which runs until the end of the test.
func (s *Server) Proxy(t testing.TB) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") //nolint:usetesting // the path of a socket must be short
	kit.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &Proxy{server: s, dir: dir, hangs: make(chan struct{})}
	close(p.hangs)
	listener, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	kit.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close(); p.Release() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// URL returns the connection string of a database through the proxy.
func (p *Proxy) URL(database string) string { return p.server.urlAt(p.dir, database) }

// Hang stops all connections, as a network does that drops every packet.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = make(chan struct{})
}

// Release has connections go on.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.hangs:
	default:
		close(p.hangs)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("unix", filepath.Join(p.server.dir, ".s.PGSQL.5432"))
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var copying sync.WaitGroup
	copying.Go(func() { p.copy(server, client) })
	copying.Go(func() { p.copy(client, server) })
	copying.Wait()
}

// copy forwards what from sends, and ends both connections with it.
func (p *Proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		goOn := p.hangs
		p.mu.Unlock()
		<-goOn
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = to.Close()
			_ = from.Close()
			return
		}
	}
}
