package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/workwire/workwire/pkg/transport/config"
)

// link is the flag that says what the connection to the broker costs.
type link string

const (
	normalLink  link = "normal"
	meteredLink link = "metered"
)

// On a metered link, every third keep-alive is a digest, as any message is one. Gateways of mobile networks forget connections
// that are silent for 5 minutes.
const (
	meteredKeepAlive = 4 * time.Minute
	meteredDigests   = 3 * meteredKeepAlive
)

// String implements [pflag.Value].
func (l *link) String() string { return string(*l) }

// Type implements [pflag.Value].
func (l *link) Type() string { return "string" }

// Set implements [pflag.Value].
func (l *link) Set(text string) error {
	if *l = link(text); *l != normalLink && *l != meteredLink {
		return fmt.Errorf("must be %s or %s", normalLink, meteredLink)
	}
	return nil
}

// keepAlive returns broker with the keep-alive of the link, unless it has one.
func (l *link) keepAlive(broker config.Config) config.Config {
	if *l == meteredLink {
		broker.KeepAlive = cmp.Or(broker.KeepAlive, meteredKeepAlive)
	}
	return broker
}

// digests returns the time between digests.
func (o *options) digests() time.Duration {
	if o.link == meteredLink && !o.digestsChosen() {
		return meteredDigests
	}
	return o.digestInterval
}
