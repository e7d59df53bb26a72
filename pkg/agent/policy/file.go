package policy

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/workwire/workwire/pkg/security/keyfile"
)

// Config configures [Open].
type Config struct {
	// File with the policy, YAML. Required.
	File string
	// Registerer for metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// File is a policy that is read again when its file changes. A file that cannot be used leaves the last
// valid policy in force. A nil File has no rules. It is safe for concurrent use.
type File struct{ content *keyfile.File[*Policy] }

// Open reads a policy for the first time. It fails if there is none, or if it is not valid.
func Open(c Config) (*File, error) {
	content, err := keyfile.Open(c.File, "policy", Parse, cmp.Or(c.Logger, slog.Default()))
	if err != nil {
		return nil, err
	}
	promauto.With(c.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "workwire_agent_policy_valid",
		Help: "1 if the policy in force is that of the file --policy; 0 while that cannot be used, and the last valid one stays in force.",
	}, func() float64 {
		if content.Err(time.Now()) != nil {
			return 0
		}
		return 1
	})
	return &File{content: content}, nil
}

// Get returns the policy in force. It looks at the file if that was not done for a second.
func (f *File) Get(now time.Time) *Policy {
	if f == nil {
		return nil
	}
	return f.content.Get(now)
}

// Run calls changed after each change of the policy, within two seconds, until ctx ends.
func (f *File) Run(ctx context.Context, changed func()) error {
	if f == nil {
		return nil
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for _, before := f.content.GetChanges(time.Now()); ; {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if _, changes := f.content.GetChanges(now); changes != before {
				before = changes
				changed()
			}
		}
	}
}
