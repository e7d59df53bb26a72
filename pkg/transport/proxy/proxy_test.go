package proxy_test

import (
	"testing"

	"github.com/workwire/workwire/pkg/transport/proxy"
)

// TestNoProxy: the forms of NO_PROXY that docs/brokers.md names.
func TestNoProxy(t *testing.T) {
	for name, test := range map[string]struct {
		noProxy, address string
		direct           bool
	}{
		"none":                         {"", "broker.example.com:443", false},
		"this machine":                 {"", "localhost:8883", true},
		"this machine, IPv6":           {"", "[::1]:8883", true},
		"host":                         {"broker.example.com", "broker.example.com:8883", true},
		"host, in capitals":            {"broker.example.com", "Broker.Example.COM:8883", true},
		"another host":                 {"broker.example.com", "other.example.com:8883", false},
		"host of which it is an end":   {"broker.example.com", "mybroker.example.com:8883", false},
		"subdomain of a host":          {"example.com", "broker.example.com:8883", true},
		"domain":                       {".svc", "broker.workwire.svc:8883", true},
		"domain, not the host":         {".example.com", "example.com:8883", false},
		"domain with an asterisk":      {"*.example.com", "broker.example.com:8883", true},
		"host and port":                {"broker.example.com:8883", "broker.example.com:8883", true},
		"host and another port":        {"broker.example.com:8883", "broker.example.com:443", false},
		"address":                      {"192.0.2.7", "192.0.2.7:8883", true},
		"address and another port":     {"192.0.2.7:443", "192.0.2.7:8883", false},
		"network":                      {"10.0.0.0/8", "10.20.30.40:8883", true},
		"another network":              {"10.0.0.0/8", "11.20.30.40:8883", false},
		"network, and a name":          {"10.0.0.0/8", "broker.example.com:8883", false},
		"IPv6 address":                 {"2001:db8::7", "[2001:db8::7]:8883", true},
		"IPv6 address, another port":   {"[2001:db8::7]:443", "[2001:db8::7]:8883", false},
		"IPv6 network":                 {"2001:db8::/32", "[2001:db8:1::7]:8883", true},
		"another IPv6 network":         {"2001:db8::/32", "[2001:db9::7]:8883", false},
		"everything":                   {"*", "broker.example.com:8883", true},
		"one of several, with a space": {"10.0.0.0/8, broker.example.com", "broker.example.com:8883", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
			t.Setenv("NO_PROXY", test.noProxy)
			through, err := proxy.FromEnvironment(test.address)
			if err != nil || (through == nil) != test.direct {
				t.Errorf("NO_PROXY=%s: %s is reached through %v, %v", test.noProxy, test.address, through, err)
			}
		})
	}
}
