package broker_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/brokertest"
)

// BenchmarkDelivery measures messages of 1 KiB per second from one publisher, which waits
// for nothing but its window of 1000, to one session, until all are acknowledged to the
// publisher and, when it is there, received by the subscriber.
func BenchmarkDelivery(b *testing.B) {
	for _, mode := range []struct {
		name   string
		expiry uint32
		online bool
	}{{"online, session ends with the connection", 0, true}, {"online, durable session", 3600, true}, {"offline, durable session", 3600, false}} {
		b.Run(mode.name, func(b *testing.B) {
			run := brokertest.Start(b, broker.Config{Users: users(), MaxQueuedMessages: 10_000_000, MaxQueuedBytes: 1 << 40})
			agent := rawDial(b, run.Addr, "c1")
			agent.connect(b, "c1", mode.expiry)
			agent.subscribe(b, specFilter)
			received := make(chan struct{})
			if mode.online {
				go func() {
					defer close(received)
					agent.takeMessages(b.N)
				}()
			} else {
				_ = agent.Close()
				close(received)
			}
			source := rawDial(b, run.Addr, "hub1")
			source.connect(b, "hub1", 0)
			b.ResetTimer()
			source.pump(b.N, bytes.Repeat([]byte("x"), 1024))
			<-received
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkLatency measures one message at a time.
func BenchmarkLatency(b *testing.B) {
	run := brokertest.Start(b, broker.Config{Users: users()})
	agent := rawDial(b, run.Addr, "c1")
	agent.connect(b, "c1", 3600)
	agent.subscribe(b, specFilter)
	source := rawDial(b, run.Addr, "hub1")
	source.connect(b, "hub1", 0)
	var delivered, acknowledged time.Duration
	for b.Loop() {
		start := time.Now()
		source.pumpOne(1, []byte("x"))
		agent.takeMessages(1)
		delivered += time.Since(start)
		_ = source.next(b).(*packets.Puback)
		acknowledged += time.Since(start)
	}
	b.ReportMetric(float64(delivered.Microseconds())/float64(b.N), "µs-to-delivery")
	b.ReportMetric(float64(acknowledged.Microseconds())/float64(b.N), "µs-to-puback")
}

func (c *rawClient) pumpOne(id uint16, payload []byte) {
	_, _ = (&packets.Publish{Topic: specTopic, QoS: 1, PacketID: id, Payload: payload, Properties: &packets.Properties{}}).WriteTo(c.Conn)
}

// pump publishes n messages with 1000 under way.
func (c *rawClient) pump(n int, payload []byte) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Minute))
	window := make(chan struct{}, 1000)
	go func() {
		for i := range n {
			window <- struct{}{}
			c.pumpOne(uint16(i%60000+1), payload)
		}
	}()
	for range n {
		if p, err := packets.ReadPacket(c.r); err != nil || p.Type != packets.PUBACK {
			panic(fmt.Sprintf("instead of PUBACK: %v, %v", p, err))
		}
		<-window
	}
}

// takeMessages receives and acknowledges n messages.
func (c *rawClient) takeMessages(n int) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Minute))
	for range n {
		p, err := packets.ReadPacket(c.r)
		if err != nil {
			panic(err)
		}
		id := p.Content.(*packets.Publish).PacketID
		_, _ = (&packets.Puback{PacketID: id, Properties: &packets.Properties{}}).WriteTo(c.Conn)
	}
}
