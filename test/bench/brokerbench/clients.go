package brokerbench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

const (
	source   = "hub1"
	password = "correct horse"

	dialing   = 64              // clients that connect at the same time
	patience  = 5 * time.Minute // of one exchange
	retryTime = 200 * time.Millisecond
)

func cluster(i int) string { return fmt.Sprintf("cluster-%05d", i) }

// conn is the connection of a client.
type conn struct {
	net.Conn
	reader *bufio.Reader
}

// dial connects client i: with a certificate, or without TLS and with a password. Like hub and agents,
// clients have sessions that outlive their connections, so that work-broker stores messages. They have
// addresses of their own on loopback, as they have in a fleet, where the system allows it.
func dial(ctx context.Context, addr string, i int, secure *tls.Config) (*conn, error) {
	dialer := net.Dialer{}
	if runtime.GOOS == "linux" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, byte(1+i/200), byte(1+i%200))}
	}
	socket, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = socket.SetDeadline(time.Now().Add(patience))
	name := cluster(i)
	if i < 0 {
		name = source
	}
	connect := mqttraw.Connect{ClientID: name, KeepAlive: 600, Props: [][]byte{mqttraw.PropFour(mqttraw.SessionExpiry, 24*3600)}}
	if secure == nil {
		connect.User, connect.Password = name, password
	} else {
		socket = tls.Client(socket, secure)
	}
	c := &conn{Conn: socket, reader: bufio.NewReaderSize(socket, 512)}
	if err := c.exchange(connect.Bytes(), mqttraw.CONNACK); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("connect %s: %w", name, err)
	}
	return c, nil
}

// dialUntil is like dial, and tries again when the broker refuses the connection because it is busy.
func dialUntil(ctx context.Context, addr string, i int, secure *tls.Config) (*conn, error) {
	for start := time.Now(); ; {
		c, err := dial(ctx, addr, i, secure)
		if err == nil || time.Since(start) > patience {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryTime):
		}
	}
}

// exchange sends a packet and reads the answer.
func (c *conn) exchange(packet []byte, want byte) error {
	if _, err := c.Write(packet); err != nil {
		return err
	}
	p, err := mqttraw.Read(c.reader)
	if err == nil && (p.Type != want || p.Code() >= 0x80) {
		err = fmt.Errorf("the broker answers %v", p)
	}
	return err
}

func (c *conn) subscribe(filter string) error {
	return c.exchange(mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: filter, Options: 1}), mqttraw.SUBACK)
}

// fleet is a number of connected agents.
type fleet []*conn

func (f fleet) close() {
	for _, c := range f {
		if c != nil {
			_ = c.Close()
		}
	}
}

// connectAll connects n agents, each with its own certificate, which subscribe to their topics. A
// connection that is refused is tried again.
func (b *bench) connectAll(ctx context.Context, addr string, n int) (f fleet, took time.Duration, err error) {
	configs := make([]*tls.Config, n)
	for i := range configs {
		if configs[i], err = b.certs.client(cluster(i), "agents"); err != nil {
			return nil, 0, err
		}
	}
	f = make(fleet, n)
	start := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(dialing)
	for i := range f {
		group.Go(func() error {
			c, err := dialUntil(ctx, addr, i, configs[i])
			if err != nil {
				return err
			}
			f[i] = c
			return c.subscribe("sources/+/clusters/" + cluster(i) + "/sourceevents")
		})
	}
	if err = group.Wait(); err != nil {
		f.close()
		return nil, 0, err
	}
	return f, time.Since(start), nil
}

// trafficWorld is a source and agents that answer each spec by a status.
type trafficWorld struct {
	hub    *conn
	agents fleet
	writes sync.Mutex // of the hub's connection
	nextID uint16

	unacked  chan struct{} // a place for each spec that the broker has not acknowledged, within its receive maximum
	answered chan int      // the agent that has answered; closed by the hub's reader at its end
	readers  sync.WaitGroup
	failure  atomic.Pointer[error]
}

// Sizes of the messages in bytes, and how many specs are not answered yet at any time.
const (
	specSize   = 2048
	statusSize = 1024
	window     = 256
	unacked    = 900
)

func (b *bench) newTraffic(ctx context.Context, addr string) (*trafficWorld, error) {
	secure, err := b.certs.client(source, "sources")
	if err != nil {
		return nil, err
	}
	w := &trafficWorld{answered: make(chan int, window), unacked: make(chan struct{}, unacked)}
	if w.hub, err = dial(ctx, addr, -1, secure); err != nil {
		return nil, err
	}
	if err = w.hub.subscribe("sources/" + source + "/clusters/+/agentevents"); err != nil {
		return nil, err
	}
	if w.agents, _, err = b.connectAll(ctx, addr, b.Clusters); err != nil {
		return nil, err
	}
	w.hub.reader = bufio.NewReaderSize(w.hub.Conn, 32<<10)
	for i, c := range w.agents {
		w.readers.Go(func() { w.fail(answer(c, i)) })
	}
	w.readers.Go(func() {
		defer close(w.answered)
		w.fail(w.readStatuses())
	})
	return w, nil
}

func (w *trafficWorld) fail(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.failure.CompareAndSwap(nil, &err)
		_ = w.hub.Close()
	}
}

func (w *trafficWorld) close() {
	_ = w.hub.Close()
	w.agents.close()
	for range w.answered { // until the reader ends
	}
	w.readers.Wait()
}

// answer acknowledges each spec and sends a status, until the connection ends.
func answer(c *conn, i int) error {
	_ = c.SetDeadline(time.Time{})
	topic := "sources/" + source + "/clusters/" + cluster(i) + "/agentevents"
	status := strings.Repeat("s", statusSize)
	for id := uint16(1); ; {
		p, err := mqttraw.Read(c.reader)
		if err != nil {
			return err
		}
		if p.Type != mqttraw.PUBLISH {
			continue
		}
		if _, err := c.Write(mqttraw.Bytes(mqttraw.Puback(p.ID), mqttraw.Publish(mqttraw.QoS1, id, topic, status))); err != nil {
			return err
		}
		id = id%60_000 + 1
	}
}

// readStatuses acknowledges each status, until the connection ends.
func (w *trafficWorld) readStatuses() error {
	_ = w.hub.SetDeadline(time.Time{})
	for {
		p, err := mqttraw.Read(w.hub.reader)
		if err != nil {
			return err
		}
		if p.Type == mqttraw.PUBACK {
			<-w.unacked
		}
		if p.Type != mqttraw.PUBLISH {
			continue
		}
		if err := w.write(mqttraw.Puback(p.ID)); err != nil {
			return err
		}
		name := strings.Split(p.Topic, "/")[3]
		var i int
		if _, err := fmt.Sscanf(name, "cluster-%d", &i); err != nil {
			return err
		}
		w.answered <- i
	}
}

func (w *trafficWorld) write(packet []byte) error {
	w.writes.Lock()
	defer w.writes.Unlock()
	_, err := w.hub.Write(packet)
	return err
}

// run makes n round trips and returns how long they took.
func (w *trafficWorld) run(ctx context.Context, n int) (time.Duration, error) {
	spec := string(bytes.Repeat([]byte("x"), specSize))
	publish := func(i int) error {
		w.nextID = w.nextID%60_000 + 1
		select {
		case w.unacked <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(patience):
			return errors.New("the broker does not acknowledge")
		}
		return w.write(mqttraw.Publish(mqttraw.QoS1, w.nextID, "sources/"+source+"/clusters/"+cluster(i)+"/sourceevents", spec))
	}
	start := time.Now()
	sent := 0
	for ; sent < min(n, window); sent++ {
		if err := publish(sent % len(w.agents)); err != nil {
			return 0, err
		}
	}
	for done := range n {
		select {
		case i, ok := <-w.answered:
			if !ok {
				if err := w.failure.Load(); err != nil {
					return 0, *err
				}
				return 0, errors.New("the hub's connection has ended")
			}
			if sent < n {
				if err := publish(i); err != nil {
					return 0, err
				}
				sent++
			}
		case <-time.After(patience):
			return 0, fmt.Errorf("%d of %d round trips in %v", done, n, time.Since(start))
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return time.Since(start), nil
}
