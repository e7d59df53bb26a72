package broker

import (
	"strconv"
	"time"

	"github.com/workwire/workwire/broker/session"
)

// publishStatistics publishes statistics below $SYS/broker/ with QoS 0, for monitors. Without a
// subscription to one it costs nothing.
func (s *server) publishStatistics(now time.Time) {
	if !s.router.HasSystemSubscribers() {
		return
	}
	stats := s.router.Stats()
	var dropped uint64
	for _, n := range stats.Dropped {
		dropped += n
	}
	for _, v := range []struct {
		topic string
		value int64
	}{
		{"uptime", int64(now.Sub(s.started).Seconds())},
		{"clients/connected", int64(stats.Connected)},
		{"clients/disconnected", int64(stats.Sessions - stats.Connected)},
		{"clients/total", int64(stats.Sessions)},
		{"subscriptions/count", int64(stats.Subscriptions)},
		{"messages/received", int64(stats.Received)},
		{"messages/sent", int64(stats.Sent)},
		{"messages/dropped", int64(dropped)},
		{"messages/inflight", int64(stats.Queued)},
		{"bytes/received", s.traffic.received.Load()},
		{"bytes/sent", s.traffic.sent.Load()},
	} {
		s.router.PublishSystem(&session.Message{Topic: "$SYS/broker/" + v.topic, Payload: strconv.AppendInt(nil, v.value, 10)})
	}
}
