package mqtt

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/transport/config"
)

// DefaultReloadInterval is the default of Config.ReloadInterval.
const DefaultReloadInterval = 5 * time.Second

// Config configures a [Transport].
type Config struct {
	// Broker is the transport configuration, for example from [config.Load]. BrokerHost is
	// required.
	Broker config.Config

	// ClientID identifies the session at the broker; required. It must be unique and must not
	// change across restarts. It is at most 65535 bytes long; many brokers have a lower limit.
	ClientID string

	// Logger receives connections and failures, but neither events nor secrets; default
	// slog.Default().
	Logger *slog.Logger

	// Registerer registers the metrics workwire_transport_*; nil registers none. Two transports
	// cannot share a Registerer: wrap it with a label.
	Registerer prometheus.Registerer

	// Refused is called each time the broker has refused the certificate of this client, and must not block. Optional.
	Refused func()

	// ReloadInterval is the interval at which the certificate files are read while connected, to
	// reconnect when they have changed. Default 5 s.
	ReloadInterval time.Duration
}

// withDefaults returns c with defaults, or an error that names every invalid field.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	if c.ClientID == "" || len(c.ClientID) > maxTextLength || !utf8.ValidString(c.ClientID) {
		errs = append(errs, fmt.Errorf("ClientID must be 1 to %d bytes of UTF-8, got %d bytes", maxTextLength, len(c.ClientID)))
	}
	if c.ReloadInterval < 0 {
		errs = append(errs, fmt.Errorf("ReloadInterval must not be negative, got %s", c.ReloadInterval))
	}
	if err := errors.Join(append(errs, c.Broker.Validate())...); err != nil {
		return Config{}, fmt.Errorf("mqtt transport: %w", err)
	}
	c.Broker = c.Broker.WithDefaults()
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.ReloadInterval = cmp.Or(c.ReloadInterval, DefaultReloadInterval)
	return c, nil
}
