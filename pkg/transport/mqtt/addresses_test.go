package mqtt_test

import (
	"net"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

// TestSeveralAddresses: a client of two brokers is at one that lives, whichever dies.
func TestSeveralAddresses(t *testing.T) {
	var running [2]*brokertest.Running
	for i := range running {
		running[i] = brokertest.Start(t, broker.Config{Users: users})
	}
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	kit.NoError(t, dead.Close())
	log := &logs{}
	c := transporttest.Start(t, client(t, "", transporttest.Cluster, func(c *mqtt.Config) {
		log.into(c)
		c.Broker.BrokerHost = strings.Join([]string{dead.Addr().String(), running[0].Addr, running[1].Addr}, ",")
	}), transporttest.ClusterSpecs)
	c.WaitConnected()
	at := func(i int) int { return log.count("connected to the broker", "brokerHost="+running[i].Addr) }
	if at(0)+at(1) != 1 || log.count("connect failed") != 0 {
		t.Fatalf("one attempt must be enough with a dead address in the list:\n%s", log)
	}
	now := at(1) // the index of the broker that has the connection
	for range 3 {
		before := at(1 - now)
		running[now].Stop()
		c.WaitLost()
		c.WaitConnected()
		if at(1-now) != before+1 {
			t.Fatalf("it is not at the other broker:\n%s", log)
		}
		running[now].Restart(t)
		now = 1 - now
	}
}

// TestServerNamePerAddress: each address is verified by its own name.
func TestServerNamePerAddress(t *testing.T) {
	ca, dir := newAuthority(t), folder{t, t.TempDir()}
	serverCert, serverKey := ca.issue("broker", "", 2) // for 127.0.0.1 only
	b := brokertest.Start(t, broker.Config{Users: users, Listeners: []broker.Listener{{Address: "127.0.0.1:0",
		TLS: &broker.ListenerTLS{CertFile: dir.write("server.crt", serverCert), KeyFile: dir.write("server.key", serverKey)}}}})
	_, port, err := net.SplitHostPort(b.Addr)
	kit.NoError(t, err)
	log := &logs{}
	c := transporttest.Start(t, client(t, "", transporttest.Cluster, func(c *mqtt.Config) {
		log.into(c)
		c.Broker = config.Config{BrokerHost: "localhost:" + port + "," + b.Addr, CA: config.PEM{Data: ca.pem},
			Username: transporttest.Cluster, Password: password}
	}))
	c.WaitConnected()
	if log.count("connected to the broker", "brokerHost="+b.Addr) != 1 || log.count("connect failed") != 0 {
		t.Errorf("log is:\n%s", log)
	}
}
