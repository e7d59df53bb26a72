package transporttest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// Proxy is a TCP proxy between clients and a broker that simulates network failures. All methods
// are safe for concurrent use.
type Proxy struct {
	// Addr is the address that clients connect to.
	Addr string

	target   string
	listener net.Listener
	group    sync.WaitGroup

	mu     sync.Mutex
	cut    bool
	stalls chan struct{} // closed by Resume; nil while not stalled
	delay  time.Duration
	conns  map[net.Conn]bool
	count  int
}

// StartProxy starts a proxy for the broker at target. It ends with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
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

// Restore allows clients to connect again after Cut.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Stall stops forwarding data until Resume, without closing connections.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalls == nil {
		p.stalls = make(chan struct{})
	}
}

// Resume forwards data again after Stall.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalls != nil {
		close(p.stalls)
		p.stalls = nil
	}
}

// Slow delays each packet by delay, and those after it; 0 ends that.
func (p *Proxy) Slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// Connections returns the number of connections of clients so far.
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
	defer p.unregister(client, server)
	if !p.register(client, server) {
		return
	}
	var group sync.WaitGroup
	group.Go(func() { p.forward(server, client) })
	p.forward(client, server)
	group.Wait()
}

func (p *Proxy) register(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.cut
}

func (p *Proxy) unregister(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// forward copies data until one end is closed, and closes both.
func (p *Proxy) forward(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		stalls, delay := p.stalls, p.delay
		p.mu.Unlock()
		time.Sleep(delay)
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
