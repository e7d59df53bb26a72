package mqtt

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/workwire/workwire/pkg/transport/config"
)

const (
	readBuffer   = 16 << 10
	writeChunk   = 64 << 10
	writeStall   = 30 * time.Second       // the broker takes nothing for so long: the connection is dead
	lastWords    = 250 * time.Millisecond // what the writes of a connection may take that is to end
	afterthought = time.Second            // how long a broken connection is read, for the broker's reason
)

// conn is a connection that paho writes packets to. paho holds its lock around
// the several writes of each packet; conn gathers them, and those of packets
// that wait for the lock, into one. A failed write shows as a failed read soon after.
type conn struct {
	net.Conn          // TLS or not
	raw      net.Conn // below TLS
	reader   *bufio.Reader
	note     func(error) // takes the reason why the connection ended; the first counts

	mu      sync.Mutex
	buffer  []byte // guarded by mu
	failed  error  // guarded by mu: the first write error
	waiting atomic.Int32
	last    atomic.Pointer[time.Time] // no write may last longer, once set

	closing sync.Once
	stop    func() bool // releases the watch on the context
}

// newConn makes a conn that does not outlive ctx by more than lastWords.
func newConn(ctx context.Context, raw, secured net.Conn, note func(error)) *conn {
	c := &conn{Conn: secured, raw: raw, reader: bufio.NewReaderSize(secured, readBuffer), note: note}
	c.stop = context.AfterFunc(ctx, c.hurry)
	return c
}

// Read gives what the broker sent.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	if err != nil {
		c.note(err)
	}
	return n, err
}

// Lock begins a packet.
func (c *conn) Lock() {
	c.waiting.Add(1)
	c.mu.Lock()
	c.waiting.Add(-1)
}

// Unlock ends a packet, and sends it unless another one follows at once: who
// waits for the lock will send it too.
func (c *conn) Unlock() {
	if c.waiting.Load() == 0 || len(c.buffer) >= writeChunk {
		c.flush()
	}
	c.mu.Unlock()
}

// Write takes a part of a packet; the caller holds the lock.
func (c *conn) Write(p []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	c.buffer = append(c.buffer, p...)
	return len(p), nil
}

func (c *conn) flush() {
	for rest := c.buffer; len(rest) > 0 && c.failed == nil; {
		chunk := rest[:min(len(rest), writeChunk)]
		rest = rest[len(chunk):]
		c.setWriteDeadline()
		if _, err := c.Conn.Write(chunk); err != nil {
			c.failed = fmt.Errorf("send to the broker: %w", err)
			// The broker may have said why before it hung up.
			_ = c.raw.SetReadDeadline(time.Now().Add(afterthought))
		}
	}
	c.buffer = c.buffer[:0]
	if cap(c.buffer) > 16*writeChunk {
		c.buffer = nil
	}
}

func (c *conn) setWriteDeadline() {
	_ = c.raw.SetWriteDeadline(time.Now().Add(writeStall))
	if last := c.last.Load(); last != nil {
		_ = c.raw.SetWriteDeadline(*last)
	}
}

// hurry bounds all writes from now on, that under way included.
func (c *conn) hurry() {
	last := time.Now().Add(lastWords)
	c.last.Store(&last)
	_ = c.raw.SetWriteDeadline(last)
}

// together runs write so that the packets it writes are sent as one.
func (c *conn) together(write func()) {
	c.waiting.Add(1)
	write()
	c.mu.Lock()
	c.waiting.Add(-1)
	c.Unlock()
}

// Close ends the connection.
func (c *conn) Close() error {
	var err error
	c.closing.Do(func() {
		c.stop()
		if c.last.Load() != nil {
			err = c.raw.Close() // to say good bye on TLS may take seconds
			return
		}
		err = c.Conn.Close()
	})
	return err
}

// dial connects to the broker, with the certificates as they are now.
func dial(ctx context.Context, broker config.Config) (raw, secured net.Conn, certs config.Certificates, err error) {
	ctx, cancel := context.WithTimeout(ctx, broker.DialTimeout)
	defer cancel()
	var settings *tls.Config
	if broker.UsesTLS() {
		if certs, err = broker.Certificates(); err != nil {
			return nil, nil, certs, err
		}
		if settings, err = broker.TLSConfig(certs); err != nil {
			return nil, nil, certs, err
		}
	}
	raw, err = new(net.Dialer).DialContext(ctx, "tcp", broker.BrokerHost)
	if err != nil || settings == nil {
		return raw, raw, certs, err
	}
	client := tls.Client(raw, settings)
	if err := client.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, nil, certs, fmt.Errorf("TLS handshake with %s: %w", broker.BrokerHost, err)
	}
	return raw, client, certs, nil
}
