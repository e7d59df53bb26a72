package session

import "testing"

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
