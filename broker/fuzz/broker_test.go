package fuzz

import (
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit/brokerchild"
)

const password = "correct horse"

func TestMain(m *testing.M) { brokerchild.Main(m, config) }

// config returns the broker's configuration, with small queues. Attackers are c1, hub1 and watch; c3
// and hub2 must be served.
func config(string) broker.Config {
	return broker.Config{
		Users: []broker.User{
			{Username: "hub1", Password: password, Role: acl.Source},
			{Username: "hub2", Password: password, Role: acl.Source},
			{Username: "c1", Password: password, Role: acl.Agent},
			{Username: "c3", Password: password, Role: acl.Agent},
			{Username: "watch", Password: password, Role: acl.Monitor},
		},
		MaxPacketSize: 256 << 10, MaxQueuedMessages: 5000, MaxQueuedBytes: 8 << 20, MaxTotalBytes: 64 << 20,
	}
}
