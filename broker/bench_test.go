package broker_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mqttkit"
)

// BenchmarkDelivery measures messages of 1 KiB per second from one publisher, with a window of 1000
// messages, to one session. It ends when all messages are acknowledged to the publisher and
// received by the subscriber, if that is connected.
func BenchmarkDelivery(b *testing.B) {
	for _, mode := range []struct {
		name   string
		expiry uint32
		online bool
	}{{"online, session ends with the connection", 0, true}, {"online, durable session", 3600, true}, {"offline, durable session", 3600, false}} {
		b.Run(mode.name, func(b *testing.B) {
			run := brokertest.Start(b, broker.Config{Users: users(), MaxQueuedMessages: 10_000_000, MaxQueuedBytes: 1 << 40})
			agent := dialRaw(b, run.Addr, "c1")
			agent.Connect("c1", mode.expiry)
			agent.Subscribe(specFilter)
			received := make(chan struct{})
			if mode.online {
				go func() {
					defer close(received)
					takeMessages(agent, b.N)
				}()
			} else {
				_ = agent.Close()
				close(received)
			}
			source := dialRaw(b, run.Addr, "hub1")
			source.Connect("hub1", 0)
			b.ResetTimer()
			publishWindow(source, b.N, bytes.Repeat([]byte("x"), 1024))
			<-received
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkLatency measures one message at a time.
func BenchmarkLatency(b *testing.B) {
	run := brokertest.Start(b, broker.Config{Users: users()})
	agent := dialRaw(b, run.Addr, "c1")
	agent.Connect("c1", 3600)
	agent.Subscribe(specFilter)
	source := dialRaw(b, run.Addr, "hub1")
	source.Connect("hub1", 0)
	var delivered, acknowledged time.Duration
	for b.Loop() {
		start := time.Now()
		_ = source.Publish(1, specTopic, []byte("x"))
		takeMessages(agent, 1)
		delivered += time.Since(start)
		_ = source.Next().(*packets.Puback)
		acknowledged += time.Since(start)
	}
	b.ReportMetric(float64(delivered.Microseconds())/float64(b.N), "µs-to-delivery")
	b.ReportMetric(float64(acknowledged.Microseconds())/float64(b.N), "µs-to-puback")
}

// publishWindow publishes n messages, of which at most 1000 are not acknowledged.
func publishWindow(c *mqttkit.Client, n int, payload []byte) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Minute))
	window := make(chan struct{}, 1000)
	go func() {
		for i := range n {
			window <- struct{}{}
			_ = c.Publish(uint16(i%60000+1), specTopic, payload)
		}
	}()
	for range n {
		_ = c.Next().(*packets.Puback)
		<-window
	}
}

// takeMessages receives and acknowledges n messages. Any goroutine may call it.
func takeMessages(c *mqttkit.Client, n int) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Minute))
	for range n {
		p, err := packets.ReadPacket(c.Reader)
		if err != nil {
			panic(err)
		}
		c.Ack(p.Content.(*packets.Publish).PacketID)
	}
}
