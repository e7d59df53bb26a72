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

// DefaultReloadInterval is what the zero value of Config.ReloadInterval stands for.
const DefaultReloadInterval = time.Minute

// Config is what [New] needs.
type Config struct {
	// Broker is where to connect to and how, from a file by [config.Load] or
	// filled in. BrokerHost is required.
	Broker config.Config

	// ClientID is what the broker knows the session by: it must be the same after
	// a restart and differ from that of every other client, of which a broker
	// keeps the latest connected only. Required; at most 65535 bytes, though many
	// brokers allow less.
	ClientID string

	// Logger is told of connections and what keeps them from working; nil logs
	// nothing. Neither events nor secrets are logged.
	Logger *slog.Logger

	// Registerer is where the metrics workwire_transport_* are registered, nil
	// for none. Two transports can not share one: wrap it with a label then.
	Registerer prometheus.Registerer

	// ReloadInterval is how often the certificate files are read again while the
	// connection is up, to reconnect with those that have changed: one minute when
	// 0. At every connect they are read in any case.
	ReloadInterval time.Duration
}

// validate fills in what is missing and reports every fault at once.
func (c Config) validate() (Config, error) {
	var faults []error
	if c.ClientID == "" || len(c.ClientID) > maxText || !utf8.ValidString(c.ClientID) {
		faults = append(faults, fmt.Errorf("ClientID: %d bytes: use 1 to %d bytes of UTF-8", len(c.ClientID), maxText))
	}
	if c.ReloadInterval < 0 {
		faults = append(faults, fmt.Errorf("ReloadInterval: %s is negative", c.ReloadInterval))
	}
	if err := errors.Join(append(faults, c.Broker.Validate())...); err != nil {
		return Config{}, fmt.Errorf("mqtt transport: %w", err)
	}
	c.Broker = c.Broker.WithDefaults()
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.ReloadInterval = cmp.Or(c.ReloadInterval, DefaultReloadInterval)
	return c, nil
}

// carried is the quality of service used for the one configured: 2 is carried
// as 1, see [config.Config].
func carried(qos byte) byte { return min(qos, 1) }
