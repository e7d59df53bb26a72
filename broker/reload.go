package broker

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"

	"github.com/workwire/workwire/pkg/runtime/filestamp"
)

// reloader takes up changes of the configuration file. One goroutine calls check.
type reloader struct {
	current Config // in force
	logger  *slog.Logger
	apply   func(Config) error // replaces users, certificates and limits, or nothing

	taken   filestamp.Stamp // of the file in force
	changed filestamp.Stamp // of the file that the last check has seen
	failure string          // of the last attempt; "" if there is none
	failing atomic.Bool
}

func newReloader(cfg Config, apply func(Config) error) *reloader {
	r := &reloader{current: cfg, logger: cfg.Logger, apply: apply}
	if cfg.File != "" {
		r.taken, _ = filestamp.Of(cfg.File) // a file that has gone is noticed by check
		r.changed = r.taken
	}
	return r
}

// check takes up a file that has changed, once it has stayed the same from one check to the next: it
// may be half written. A file that cannot be used changes nothing, and is tried again.
func (r *reloader) check() {
	if r.current.File == "" {
		return
	}
	stamp, err := filestamp.Of(r.current.File)
	switch {
	case err != nil:
	case stamp == r.taken:
		r.changed, r.failure = stamp, ""
		r.failing.Store(false)
		return
	case stamp != r.changed:
		r.changed = stamp
		return
	default:
		err = r.reload()
	}
	if err == nil {
		r.taken, r.failure = stamp, ""
		r.failing.Store(false)
		return
	}
	r.failing.Store(true)
	if r.failure != err.Error() {
		r.failure = err.Error()
		r.logger.Error("reloading the configuration failed, the previous one stays in force", "file", r.current.File, "error", err)
	}
}

func (r *reloader) reload() error {
	next, err := LoadConfig(r.current.File)
	if err != nil {
		return err
	}
	next.Logger = r.logger
	next.setDefaults()
	if err := next.validate(); err != nil {
		return err
	}
	if err := r.apply(next); err != nil {
		return err
	}
	if restart := needRestart(r.current, next); len(restart) > 0 {
		r.logger.Warn("changes of the configuration wait for a restart", "keys", strings.Join(restart, ", "))
	}
	r.logger.Info("configuration reloaded", "file", r.current.File, "users", len(next.Users), "certificates", len(next.Certificates))
	return nil
}

// needRestart returns the keys that differ and that a running broker does not take up.
func needRestart(former, next Config) (keys []string) {
	for _, key := range []struct {
		name         string
		former, next any
	}{
		{"listeners", former.Listeners, next.Listeners},
		{"dataDir", former.DataDir, next.DataDir},
		{"maxPacketSize", former.MaxPacketSize, next.MaxPacketSize},
		{"receiveMaximum", former.ReceiveMaximum, next.ReceiveMaximum},
		{"httpAddress", former.HTTPAddress, next.HTTPAddress},
		{"httpCertFile", former.HTTPCertFile, next.HTTPCertFile},
		{"httpKeyFile", former.HTTPKeyFile, next.HTTPKeyFile},
		{"httpTokenFile", former.HTTPTokenFile, next.HTTPTokenFile},
	} {
		if !reflect.DeepEqual(key.former, key.next) {
			keys = append(keys, key.name)
		}
	}
	return keys
}

// status returns a line for /readyz if the file is not in force, else "".
func (r *reloader) status() string {
	if !r.failing.Load() {
		return ""
	}
	return fmt.Sprintf("configuration: %s cannot be used, the previous one stays in force; see the log\n", r.current.File)
}
