package membership

import (
	"crypto/x509"
	"testing"
	"time"
)

// TestRenewAt: a certificate is renewed when two thirds of its life have passed, and up to a tenth of it later.
func TestRenewAt(t *testing.T) {
	begin := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		life   time.Duration
		chance float64
		want   time.Duration
	}{
		"90 days, the first":  {90 * 24 * time.Hour, 0, 60 * 24 * time.Hour},
		"90 days, the middle": {90 * 24 * time.Hour, 0.5, 64*24*time.Hour + 12*time.Hour},
		"90 days, the last":   {90 * 24 * time.Hour, 1, 69 * 24 * time.Hour},
		"an hour":             {time.Hour, 0, 40 * time.Minute},
		"an hour, the last":   {time.Hour, 1, 46 * time.Minute},
		"no life":             {0, 1, 0},
	} {
		got := renewAt(&x509.Certificate{NotBefore: begin, NotAfter: begin.Add(c.life)}, c.chance).Sub(begin)
		if (got - c.want).Abs() > time.Second {
			t.Errorf("%s: after %s, want %s", name, got, c.want)
		}
	}
}
