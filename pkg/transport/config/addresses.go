package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/workwire/workwire/pkg/transport/proxy"
)

// Addresses returns the addresses in BrokerHost, in their order.
func (c Config) Addresses() []string {
	var addresses []string
	for address := range strings.SplitSeq(c.BrokerHost, ",") {
		if address = strings.TrimSpace(address); address != "" {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// Address is one of the places where the broker listens.
type Address struct {
	// Host is the host:port to connect to.
	Host string
	// URL is that of a WebSocket; nil: MQTT is not in a WebSocket.
	URL *url.URL
}

// ParseAddress parses one of the addresses in BrokerHost: host:port, or the URL of a WebSocket, wss:// or ws://, whose port
// is 443 or 80 if there is none. Errors contain the address and what to do.
func ParseAddress(text string) (Address, error) {
	const example = `for example "broker.example.com:8883", or "wss://broker.example.com/mqtt" for a WebSocket`
	a := Address{Host: text}
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		port, known := map[string]string{"wss": "443", "ws": "80"}[cmp.Or(u, &url.URL{}).Scheme]
		switch {
		case err != nil || u.Host == "":
			return a, fmt.Errorf("brokerHost: %q is no URL, %s", text, example)
		case !known:
			return a, fmt.Errorf("brokerHost: %q is a URL, and not that of a WebSocket: give host:port alone, %s; "+
				"TLS is chosen by giving tls: required, caFile or clientCertFile", text, example)
		case u.User != nil || u.Fragment != "":
			return a, fmt.Errorf("brokerHost: the URL of %s has a user or a fragment: remove it, and give username and passwordFile", u.Host)
		}
		a = Address{Host: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), URL: u}
	}
	host, port, err := net.SplitHostPort(a.Host)
	if err != nil || host == "" {
		return a, fmt.Errorf("brokerHost: %q is no host:port, %s", text, example)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return a, fmt.Errorf("brokerHost: port %q of %q is no number from 1 to 65535", port, text)
	}
	return a, nil
}

// Proxy returns the proxy that connects to a, nil for none: that of the environment, for connections with TLS.
func (c Config) Proxy(a Address) (*proxy.Proxy, error) {
	if !c.UsesTLS() {
		return nil, nil
	}
	return proxy.FromEnvironment(a.Host)
}

// HubIdentity returns what is hashed into the names of AppliedManifestWorks: HubName, or BrokerHost
// if that is one address. The names must not change with a list, so that it returns an error for
// several addresses without a HubName.
func (c Config) HubIdentity() (string, error) {
	if c.HubName != "" {
		return c.HubName, nil
	}
	if addresses := c.Addresses(); len(addresses) > 1 {
		return "", fmt.Errorf("hubName: required with several addresses in brokerHost: it is hashed into the names of "+
			"AppliedManifestWorks. If this agent has used a single address, give that one, such as hubName: %q; "+
			"otherwise any name, and never change it (docs/brokers.md, Several addresses)", addresses[0])
	}
	return c.BrokerHost, nil
}

// addressesField decodes one text, or a list of texts.
func addressesField(to *string) func(json.RawMessage) error {
	return func(raw json.RawMessage) error {
		var list []string
		if json.Unmarshal(raw, &list) != nil {
			if json.Unmarshal(raw, to) != nil {
				return errors.New("is neither text nor a list of texts: put each host:port in quotes")
			}
			return nil
		}
		if i := slices.IndexFunc(list, func(address string) bool {
			return strings.Contains(address, ",") || strings.TrimSpace(address) == ""
		}); i >= 0 {
			return fmt.Errorf("%q in the list is no host:port", list[i])
		}
		*to = strings.Join(list, ",")
		return nil
	}
}

func (c Config) validateAddresses() error {
	addresses := c.Addresses()
	if len(addresses) == 0 {
		return errors.New(`brokerHost: required, host:port of the MQTT broker, for example "broker.example.com:1883"`)
	}
	if len(addresses) != strings.Count(c.BrokerHost, ",")+1 {
		return fmt.Errorf("brokerHost: %q has a comma without an address: remove it", c.BrokerHost)
	}
	var errs []error
	for i, address := range addresses {
		if slices.Contains(addresses[:i], address) {
			errs = append(errs, fmt.Errorf("brokerHost: %q is there twice: remove one", address))
			continue
		}
		a, err := ParseAddress(address)
		if err == nil && a.URL != nil && a.URL.Scheme == "ws" && c.UsesTLS() {
			err = fmt.Errorf("brokerHost: %q is without TLS: use wss://, or remove the certificates, tls: required and other wss:// addresses", address)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
