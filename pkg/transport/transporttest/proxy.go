package transporttest

import (
	"net"
	"sync"
	"testing"
)

// Proxy stands between clients and a broker on TCP, and fails as a network
// does. All methods may be called from any goroutine.
type Proxy struct {
	// Addr is where clients connect to.
	Addr string

	target   string
	listener net.Listener
	group    sync.WaitGroup

	mu     sync.Mutex
	cut    bool
	stalls chan struct{} // not nil while nothing is passed on; closed to go on
	conns  map[net.Conn]bool
	count  int
}

// StartProxy makes a proxy to the broker at target that ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: listener.Addr().String(), target: target, listener: listener, conns: make(map[net.Conn]bool)}
	p.group.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		p.Resume()
		p.group.Wait()
	})
	return p
}

// Cut ends all connections and refuses new ones until Restore.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

// Restore lets clients connect again after Cut.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Stall passes nothing on until Resume; connections stay up, as if the network
// had become a black hole.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalls == nil {
		p.stalls = make(chan struct{})
	}
}

// Resume goes on after Stall.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalls != nil {
		close(p.stalls)
		p.stalls = nil
	}
}

// Connections counts those that clients have begun so far.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	p.count++
	p.mu.Unlock()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	defer p.drop(client, server)
	if !p.take(client, server) {
		return
	}
	var group sync.WaitGroup
	group.Go(func() { p.pass(server, client) })
	p.pass(client, server)
	group.Wait()
}

func (p *Proxy) take(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.cut
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// pass copies until either end is closed, and then closes both.
func (p *Proxy) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		stalls := p.stalls
		p.mu.Unlock()
		if stalls != nil {
			<-stalls
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
