package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
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
	const example = `for example "broker.example.com:1883"`
	addresses := c.Addresses()
	if len(addresses) == 0 {
		return errors.New("brokerHost: required, host:port of the MQTT broker, " + example)
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
		host, port, err := net.SplitHostPort(address)
		if strings.Contains(address, "://") {
			errs = append(errs, fmt.Errorf("brokerHost: %q is a URL: give host:port alone, %s; "+
				"TLS is chosen by giving tls: required, caFile or clientCertFile", address, example))
			continue
		}
		if err != nil || host == "" {
			errs = append(errs, fmt.Errorf("brokerHost: %q is no host:port, %s", address, example))
			continue
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			errs = append(errs, fmt.Errorf("brokerHost: port %q of %q is no number from 1 to 65535", port, address))
		}
	}
	return errors.Join(errs...)
}
