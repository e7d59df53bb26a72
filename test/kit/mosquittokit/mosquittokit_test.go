package mosquittokit_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/mosquittokit"
)

func TestStartStopRestart(t *testing.T) {
	kit.Mosquitto.Require(t)
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	cfg := mosquittokit.Config{Dir: t.TempDir(), Users: []broker.User{
		{Username: "hub1", Password: "one", Role: acl.Source},
		{Username: "cluster1", Password: "two", Role: acl.Agent},
	}}
	p, err := mosquittokit.Start(ctx, cfg)
	kit.NoError(t, err)
	kit.NoError(t, p.Stop())
	if err := p.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr); err == nil {
		t.Error("it still accepts connections after Stop")
	}

	cfg.Port = p.Config.Port
	again, err := mosquittokit.Start(ctx, cfg)
	if err != nil {
		t.Fatalf("restart on the same port: %v", err)
	}
	defer func() { _ = again.Kill() }()

	cfg.Dir = t.TempDir()
	second, err := mosquittokit.Start(ctx, cfg)
	if err == nil {
		_ = second.Kill()
	}
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("start on a port in use: got %v, want an error that says so", err)
	}
}

// TestStopAtOnce: Mosquitto forgets a SIGTERM that comes too early; Stop repeats it.
func TestStopAtOnce(t *testing.T) {
	kit.Mosquitto.Require(t)
	for range 20 {
		p, err := mosquittokit.Start(t.Context(), mosquittokit.Config{Dir: t.TempDir()})
		kit.NoError(t, err)
		kit.NoError(t, p.Stop())
	}
}

func TestRenderRefusesUsers(t *testing.T) {
	for name, test := range map[string]struct {
		user broker.User
		want string
	}{
		"monitor":     {broker.User{Username: "m", Password: "x", Role: acl.Monitor}, "monitors are not supported"},
		"joiner":      {broker.User{Username: "j", Password: "x", Role: acl.Joiner}, "called joiner.any"},
		"observer":    {broker.User{Username: "ops", Password: "x", Role: acl.Observer}, "call it observer.ops"},
		"other id":    {broker.User{Username: "m", ID: "n", Password: "x", Role: acl.Agent}, "of an agent must equal the user name"},
		"no password": {broker.User{Username: "m", Role: acl.Agent}, "plain password"},
		"bad id":      {broker.User{Username: "M\n", Password: "x", Role: acl.Agent}, "lower-case"},
	} {
		t.Run(name, func(t *testing.T) {
			err := mosquittokit.Render(mosquittokit.Config{Dir: t.TempDir(), Port: 1, Users: []broker.User{test.user}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
