package brokertest_test

import (
	"context"
	"net"
	"testing"

	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

func TestStart(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: []broker.User{
		{Username: "hub1", Password: "secret", Role: acl.Source},
		{Username: "c1", Password: "secret", Role: acl.Agent},
	}})
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	got := make(chan string, 1)
	agent := connect(ctx, t, b.Addr, "c1", paho.ClientConfig{
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(p paho.PublishReceived) (bool, error) {
				got <- string(p.Packet.Payload)
				return true, nil
			}},
	})
	if _, err := agent.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{
		{Topic: "sources/+/clusters/c1/sourceevents", QoS: 1}}}); err != nil {
		t.Fatal(err)
	}
	source := connect(ctx, t, b.Addr, "hub1", paho.ClientConfig{})
	if _, err := source.Publish(ctx, &paho.Publish{Topic: "sources/hub1/clusters/c1/sourceevents", QoS: 1, Payload: []byte("hello")}); err != nil {
		t.Fatal(err)
	}
	select {
	case p := <-got:
		if p != "hello" {
			t.Errorf("got %q", p)
		}
	case <-ctx.Done():
		t.Error("the agent did not get the message")
	}
}

func connect(ctx context.Context, t *testing.T, addr, user string, cfg paho.ClientConfig) *paho.Client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	kit.NoError(t, err)
	cfg.Conn = conn
	c := paho.NewClient(cfg)
	if _, err := c.Connect(ctx, &paho.Connect{
		ClientID: user, KeepAlive: 30, CleanStart: true,
		UsernameFlag: true, Username: user, PasswordFlag: true, Password: []byte("secret"),
	}); err != nil {
		t.Fatalf("connect as %s: %v", user, err)
	}
	t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
	return c
}
