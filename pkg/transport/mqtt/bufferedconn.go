package mqtt

import (
	"bufio"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readBuffer     = 16 << 10
	writeChunk     = 64 << 10
	writeTimeout   = 30 * time.Second       // after which the connection is considered lost
	closingTimeout = 250 * time.Millisecond // see limitWrites
	reasonTimeout  = time.Second            // for reading the broker's DISCONNECT after a failed write
)

// bufferedConn is a connection that paho writes packets to. paho holds its lock during the writes
// of each packet. bufferedConn combines these writes, and those of packets that wait for the lock,
// into one. After a failed write, reads soon fail too.
type bufferedConn struct {
	net.Conn          // TLS or not
	raw      net.Conn // below TLS
	reader   *bufio.Reader
	onError  func(error) // called with the reason of the loss; only the first call counts

	mu            sync.Mutex
	buffer        []byte // guarded by mu
	failed        error  // the first write error; guarded by mu
	writers       atomic.Int32
	writeDeadline atomic.Pointer[time.Time] // of all writes, once set

	closing sync.Once
}

// Read implements [net.Conn].
func (c *bufferedConn) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	if err != nil {
		c.onError(err)
	}
	return n, err
}

// Lock begins a packet.
func (c *bufferedConn) Lock() {
	c.writers.Add(1)
	c.mu.Lock()
	c.writers.Add(-1)
}

// Unlock ends a packet, and sends it unless another writer waits for the lock, which sends both.
func (c *bufferedConn) Unlock() {
	if c.writers.Load() == 0 || len(c.buffer) >= writeChunk {
		c.flush()
	}
	c.mu.Unlock()
}

// Write appends a part of a packet. The caller must hold the lock.
func (c *bufferedConn) Write(p []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	c.buffer = append(c.buffer, p...)
	return len(p), nil
}

func (c *bufferedConn) flush() {
	for rest := c.buffer; len(rest) > 0 && c.failed == nil; {
		chunk := rest[:min(len(rest), writeChunk)]
		rest = rest[len(chunk):]
		c.setWriteDeadline()
		if _, err := c.Conn.Write(chunk); err != nil {
			c.failed = fmt.Errorf("send to the broker: %w", err)
			// The broker may have sent the reason before it closed the connection.
			_ = c.Conn.SetReadDeadline(time.Now().Add(reasonTimeout))
		}
	}
	c.buffer = c.buffer[:0]
	if cap(c.buffer) > 16*writeChunk {
		c.buffer = nil
	}
}

func (c *bufferedConn) setWriteDeadline() {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if last := c.writeDeadline.Load(); last != nil {
		_ = c.Conn.SetWriteDeadline(*last)
	}
}

// limitWrites makes all writes, including the one in progress, fail after closingTimeout.
func (c *bufferedConn) limitWrites() {
	last := time.Now().Add(closingTimeout)
	c.writeDeadline.Store(&last)
	_ = c.Conn.SetWriteDeadline(last)
}

// batch sends the packets that write writes with one system call.
func (c *bufferedConn) batch(write func()) {
	c.writers.Add(1)
	write()
	c.mu.Lock()
	c.writers.Add(-1)
	c.Unlock()
}

// Close ends the connection.
func (c *bufferedConn) Close() error {
	var err error
	c.closing.Do(func() {
		if c.writeDeadline.Load() != nil {
			err = c.raw.Close() // closing TLS may take seconds
			return
		}
		err = c.Conn.Close()
	})
	return err
}
