// Package mqttflood loads a broker as much as one client can, and measures what others notice. Tests
// and benchmarks share it.
//
//	probe, err := mqttflood.NewProbe(hub, agent, "hub1", "c2") // connected clients
//	without, err := probe.Measure(ctx, 5*time.Second)
//	attacker, err := mqttflood.Start(mqttflood.Attack{Kind: "QoS 0", Addr: addr, User: "c1", …})
//	with, err := probe.Measure(ctx, 5*time.Second)
//	sent, err := attacker.Stop()
//
// The program that uses it calls [Main] first.
package mqttflood

import (
	"bufio"
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

// Dial connects the client that floods, once more, and returns the connection after its CONNACK.
type Dial func(ctx context.Context) (net.Conn, error)

// Flood sends to topic as much as the broker takes, until ctx ends, and returns how many messages it
// has sent. A connection that ends is made again. Its goroutines have ended when it returns.
type Flood func(ctx context.Context, dial Dial, topic string) int64

// Kinds are the floods by name.
var Kinds = map[string]Flood{
	"QoS 0": func(ctx context.Context, dial Dial, topic string) int64 { return send(ctx, dial, topic, 1, 0, 256) },
	"QoS 1": func(ctx context.Context, dial Dial, topic string) int64 {
		return send(ctx, dial, topic, 1, mqttraw.QoS1, 256)
	},
	"large messages": func(ctx context.Context, dial Dial, topic string) int64 {
		return send(ctx, dial, topic, 1, mqttraw.QoS1, 900<<10)
	},
	"90 connections": func(ctx context.Context, dial Dial, topic string) int64 {
		return send(ctx, dial, topic, 90, mqttraw.QoS1, 256)
	},
	"new connections": reconnect,
	"subscriptions":   subscribe,
	wrongPasswords:    func(ctx context.Context, dial Dial, _ string) int64 { return open(ctx, dial, 50) },
	halfOpen:          func(ctx context.Context, dial Dial, _ string) int64 { return open(ctx, dial, 5000) },
}

// Kinds without a login: their [Dial] fails after the broker has refused a user name and a password, or
// returns a connection on which nothing is sent.
const (
	wrongPasswords = "wrong passwords"
	halfOpen       = "half-open connections"
)

// Sends reports whether a flood sends messages.
func Sends(kind string) bool {
	return kind != "subscriptions" && kind != wrongPasswords && kind != halfOpen
}

const (
	unacked    = 1000                   // messages of a connection that the broker has not acknowledged
	retryDelay = 10 * time.Millisecond  // after a connection that is refused
	perWrite   = 64 << 10               // bytes that are written at once
	churners   = 16                     // connections that are made at the same time
	churnSize  = 64 << 10               // bytes of their message
	closeAfter = 100 * time.Millisecond // a connection that is being made again and again

	connectTime = 30 * time.Second // until the CONNACK; the broker may hold it back
)

// send floods with messages of size bytes over a number of connections.
func send(ctx context.Context, dial Dial, topic string, connections int, qos byte, size int) int64 {
	var sent atomic.Int64
	var group sync.WaitGroup
	payload := strings.Repeat("f", size)
	for range connections {
		group.Go(func() {
			again(ctx, dial, func(conn net.Conn) {
				places, gone := make(chan struct{}, unacked), make(chan struct{})
				go func() {
					defer close(gone)
					read(conn, func(p *mqttraw.Received) {
						if p.Type == mqttraw.PUBACK {
							<-places
						}
					})
				}()
				for id := uint16(0); ; {
					var batch []byte
					n := int64(0)
					for ; n == 0 || len(batch) < perWrite && (qos == 0 || len(places) < cap(places)); n++ {
						if qos > 0 {
							select {
							case places <- struct{}{}:
							case <-gone:
								return
							}
						}
						id = id%60_000 + 1
						batch = append(batch, mqttraw.Publish(qos, id, topic, payload)...)
					}
					if _, err := conn.Write(batch); err != nil {
						return
					}
					sent.Add(n)
				}
			})
		})
	}
	group.Wait()
	return sent.Load()
}

// reconnect floods with connections that send one message each and end.
func reconnect(ctx context.Context, dial Dial, topic string) int64 {
	var sent atomic.Int64
	var group sync.WaitGroup
	message := mqttraw.Publish(mqttraw.QoS1, 1, topic, strings.Repeat("f", churnSize))
	for range churners {
		group.Go(func() {
			again(ctx, dial, func(conn net.Conn) {
				_ = conn.SetDeadline(time.Now().Add(closeAfter))
				if _, err := conn.Write(message); err == nil {
					sent.Add(1)
					_, _ = mqttraw.Read(bufio.NewReader(conn))
				}
			})
		})
	}
	group.Wait()
	return sent.Load()
}

// open floods with connections, a number of them at a time, and returns how many were opened.
func open(ctx context.Context, dial Dial, connections int) int64 {
	var opened atomic.Int64
	var group sync.WaitGroup
	count := func(ctx context.Context) (net.Conn, error) {
		opened.Add(1)
		return dial(ctx)
	}
	for range connections {
		group.Go(func() {
			again(ctx, count, func(conn net.Conn) { read(conn, func(*mqttraw.Received) {}) })
		})
	}
	group.Wait()
	return opened.Load()
}

// subscribe floods with packets of 900 filters, which replace the former ones.
func subscribe(ctx context.Context, dial Dial, topic string) int64 {
	var sent atomic.Int64
	cluster := strings.Split(topic, "/")[3]
	again(ctx, dial, func(conn net.Conn) {
		go read(conn, func(*mqttraw.Received) {})
		for qos := byte(0); ; qos = 1 - qos {
			var filters []mqttraw.Filter
			for i := range 900 {
				word := string([]byte{'a' + byte(i/26/26), 'a' + byte(i/26%26), 'a' + byte(i%26)})
				filters = append(filters, mqttraw.Filter{Topic: word + "/+/clusters/" + cluster + "/sourceevents", Options: qos})
			}
			if _, err := conn.Write(mqttraw.Subscribe(1, nil, filters...)); err != nil {
				return
			}
			sent.Add(1)
		}
	})
	return sent.Load()
}

// again calls use with one connection after the other until ctx ends, which ends the current one.
func again(ctx context.Context, dial Dial, use func(net.Conn)) {
	for ctx.Err() == nil {
		conn, err := dial(ctx)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(retryDelay):
			}
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		use(conn)
		stop()
		_ = conn.Close()
	}
}

// read calls handle for each packet until the connection ends.
func read(conn net.Conn, handle func(*mqttraw.Received)) {
	r := bufio.NewReader(conn)
	for {
		p, err := mqttraw.Read(r)
		if err != nil {
			return
		}
		handle(p)
	}
}
