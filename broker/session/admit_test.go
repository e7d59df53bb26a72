package session

import (
	"testing"
	"time"
)

func TestAdmit(t *testing.T) {
	limit := amount{messages: 80, bytes: 8000}
	for name, test := range map[string]struct {
		a    arrival
		want verdict
	}{
		"below half, all of one publisher":     {arrival{qos: 1, shares: true, queue: amount{40, 4000}, own: amount{40, 4000}}, accepted},
		"above half, within the share":         {arrival{qos: 1, shares: true, queue: amount{41, 100}, own: amount{10, 100}}, accepted},
		"above half, above the share":          {arrival{qos: 1, shares: true, queue: amount{41, 100}, own: amount{11, 100}}, refused},
		"bytes above the share":                {arrival{qos: 1, shares: true, queue: amount{1, 4001}, own: amount{1, 1001}}, refused},
		"no shares":                            {arrival{qos: 1, queue: amount{80, 8000}, own: amount{80, 8000}}, accepted},
		"full":                                 {arrival{qos: 1, queue: amount{81, 100}, own: amount{1, 1}}, endSession},
		"full of many publishers":              {arrival{qos: 1, shares: true, queue: amount{81, 100}, own: amount{1, 1}}, endSession},
		"full, the publisher above its share":  {arrival{qos: 1, shares: true, queue: amount{81, 100}, own: amount{60, 1}}, refused},
		"QoS 0, full":                          {arrival{queue: amount{81, 100}}, dropped},
		"QoS 0, above the share":               {arrival{shares: true, queue: amount{41, 100}, own: amount{11, 100}}, dropped},
		"QoS 0, all queues are full":           {arrival{queue: amount{1, 1}, total: 101, totalLimit: 100}, dropped},
		"all queues above half, much of it":    {arrival{qos: 1, shares: true, queue: amount{1, 1}, total: 51, totalOwn: 13, totalLimit: 100}, refused},
		"all queues above half, little of it":  {arrival{qos: 1, shares: true, queue: amount{1, 1}, total: 51, totalOwn: 12, totalLimit: 100}, accepted},
		"all queues above half, without share": {arrival{qos: 1, queue: amount{1, 1}, total: 51, totalOwn: 51, totalLimit: 100}, accepted},
		"QoS 0, memory of the queue is full":   {arrival{memory: 101, memoryLimit: 100}, dropped},
		"QoS 0, all memory is full":            {arrival{allMemory: 101, maximum: 100}, dropped},
		"memory above half, much of it":        {arrival{qos: 1, shares: true, allMemory: 51, ownMemory: 13, maximum: 100}, refused},
		"memory above half, little of it":      {arrival{qos: 1, shares: true, allMemory: 51, ownMemory: 12, maximum: 100}, accepted},
	} {
		test.a.limit = limit
		if got := admit(test.a); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
}

// TestArrival: what decides about a message counts it, and memory only as long as the store does not keep it.
func TestArrival(t *testing.T) {
	if (amount{3, 30}).minus(amount{1, 10}) != (amount{2, 20}) || admit(arrival{qos: 1, shares: true, queue: amount{9, 9}, own: amount{9, 9}}) != accepted {
		t.Error("the difference of amounts is wrong, or no limit is one")
	}
	now := time.Unix(1000, 0)
	r := &Router{
		cfg: Config{
			Limits: Limits{MaxQueuedMessages: 7, MaxQueuedBytes: 5000, MaxQueuedMemory: 4000, MaxTotalBytes: 9000, MaxTotalMemory: 8000},
			Now:    func() time.Time { return now }, Shares: func(string) bool { return true },
		},
		totalBytes: 300, totalMemory: 200, publishers: map[string]held{"p": {bytes: 100, memory: 50}},
	}
	s := &session{queued: amount{2, 80}, publishers: map[string]amount{"p": {1, 40}}, memory: 30, disconnectedAt: now.Add(-sharesAfterDisconnect)}
	msg, e := &shared{bytes: 10}, &entry{qos: 1, stored: true}
	const add = 10 + entryBytes
	want := arrival{
		qos: 1, queue: amount{3, 80 + add}, own: amount{2, 40 + add}, limit: amount{7, 5000}, total: 300 + add, totalOwn: 100 + add, totalLimit: 9000,
	}
	if got := r.arrival(s, "p", msg, e); got != want {
		t.Errorf("stored:\n%+v, want\n%+v", got, want)
	}
	e.stored, s.disconnectedAt = false, s.disconnectedAt.Add(1)
	want.shares, want.limit.bytes = true, 4000
	want.memory, want.memoryLimit, want.allMemory, want.ownMemory, want.maximum = 30+add, 4000, 200+add, 50+add, 8000
	if got := r.arrival(s, "p", msg, e); got != want {
		t.Errorf("in memory:\n%+v, want\n%+v", got, want)
	}
}
