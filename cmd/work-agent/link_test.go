package main

import (
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/transport/config"
)

// TestLink: what the owner sets counts on any link.
func TestLink(t *testing.T) {
	for name, c := range map[string]struct {
		args               []string
		configured         time.Duration // keepAlive of the transport configuration
		keepAlive, digests time.Duration
	}{
		"normal":            {digests: time.Minute},
		"normal, set":       {args: []string{"--digest-interval=2m"}, configured: 30 * time.Second, keepAlive: 30 * time.Second, digests: 2 * time.Minute},
		"metered":           {args: []string{"--link=metered"}, keepAlive: 4 * time.Minute, digests: 12 * time.Minute},
		"metered, both set": {args: []string{"--link=metered", "--digest-interval=1m"}, configured: time.Minute, keepAlive: time.Minute, digests: time.Minute},
		"metered, none":     {args: []string{"--digest-interval=0", "--link=metered"}, keepAlive: 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOptions()
			if err := newCommandOf(o).ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			if got := o.link.keepAlive(config.Config{KeepAlive: c.configured}).KeepAlive; got != c.keepAlive {
				t.Errorf("keep-alive %v, want %v", got, c.keepAlive)
			}
			if got := o.digests(); got != c.digests {
				t.Errorf("digests every %v, want %v", got, c.digests)
			}
		})
	}
}
