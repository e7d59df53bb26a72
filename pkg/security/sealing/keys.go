package sealing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/runtime/filestamp"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/security/keyfile"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// publicSuffix ends the names of files with public keys: CLUSTER.pub.
	publicSuffix = ".pub"
	// AllClusters in [SealerConfig.Required] stands for all clusters.
	AllClusters = "*"
	// defaultInterval is the time between looks at the directory.
	defaultInterval = 5 * time.Second
)

// SealerConfig configures [NewSealer].
type SealerConfig struct {
	// Dir is a directory with a file CLUSTER.pub for each cluster whose specs are sealed, see
	// [ParsePublicKey]; required.
	Dir string
	// Required are clusters that get nothing in clear, [AllClusters] for all. A cluster with a file
	// is one of them.
	Required []wire.ClusterName
	// Secret returns a secret of the source for a purpose, at least 32 bytes, which is the same after
	// a restart and on all replicas; signing.Signer.Secret does. Required.
	Secret func(purpose string) []byte
	// Interval is the time between looks at the directory; default 5 s.
	Interval time.Duration
	// Registerer for metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// Sealer seals the specs of one source. It is safe for concurrent use. A nil Sealer seals nothing.
type Sealer struct {
	config SealerConfig
	specs  *prometheus.CounterVec

	mu   sync.Mutex
	keys map[wire.ClusterName]clusterKey
}

// clusterKey is what is known of the key of a cluster.
type clusterKey struct {
	stamp filestamp.Stamp // of the content that was read last; zero if the file could not be read since
	key   *PublicKey      // nil if no valid one was read yet
	err   error           // why the file, as it is now, cannot be used
	gone  bool            // there is no file any more
}

// NewSealer reads the keys. A file that cannot be used is no error: the cluster gets nothing.
func NewSealer(c SealerConfig) (*Sealer, error) {
	if err := required.Fields(c, "Dir", "Secret"); err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	c.Interval = cmp.Or(c.Interval, defaultInterval)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	s := &Sealer{config: c, keys: map[wire.ClusterName]clusterKey{}, specs: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "workwire_source_sealed_specs_total",
		Help: "Specs to publish, by what was done: sealed, clear (the cluster has no key), or no_key (not published, for that reason).",
	}, []string{"result"})}
	if c.Registerer != nil {
		gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "workwire_source_seal_keys", Help: "Clusters with a key that specs are sealed to.",
		}, func() float64 { return float64(s.usable()) })
		if err := errors.Join(c.Registerer.Register(s.specs), c.Registerer.Register(gauge)); err != nil {
			return nil, fmt.Errorf("register the metrics of sealing: %w", err)
		}
	}
	if _, err := s.refresh(); err != nil {
		return nil, err
	}
	return s, nil
}

// Run reads keys again that have changed, until ctx ends, and calls changed for their clusters. A nil
// Sealer returns at once.
func (s *Sealer) Run(ctx context.Context, changed func(wire.ClusterName)) {
	if s == nil {
		return
	}
	ticker := time.NewTicker(s.config.Interval)
	defer ticker.Stop()
	for {
		clusters, err := s.refresh()
		if err != nil {
			s.config.Logger.Error("keys cannot be listed, the former ones stay in use", "error", err)
		}
		for _, cluster := range clusters {
			changed(cluster)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// keyOf returns the key of a cluster; nil if what is sent to it need not be sealed.
func (s *Sealer) keyOf(cluster wire.ClusterName) (*PublicKey, error) {
	s.mu.Lock()
	known, ok := s.keys[cluster]
	s.mu.Unlock()
	switch {
	case known.key != nil:
		return known.key, nil
	case ok || slices.Contains(s.config.Required, cluster) || slices.Contains(s.config.Required, AllClusters):
		return nil, &NoKeyError{Cluster: cluster, Err: known.err}
	default:
		return nil, nil
	}
}

func (s *Sealer) usable() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for known := range maps.Values(s.keys) {
		if known.key != nil {
			n++
		}
	}
	return n
}

func (s *Sealer) count(result string) { s.specs.WithLabelValues(result).Inc() }

// ListedKey is the key of a cluster in a directory.
type ListedKey struct {
	PublicKey
	// File is the name of its file.
	File string
}

// ListKeys returns the keys of the files CLUSTER.pub in dir, sorted by name. It reports every file that
// is not valid.
func ListKeys(dir string) (keys []ListedKey, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, file := range files {
		name, isKey := strings.CutSuffix(file.Name(), publicSuffix)
		if !isKey {
			continue
		}
		key, err := readKey(filepath.Join(dir, file.Name()))
		if !clusterShape.MatchString(name) {
			err = fmt.Errorf("%q is not the name of a cluster: want a-z, 0-9 and -", name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file.Name(), err))
			continue
		}
		keys = append(keys, ListedKey{key, file.Name()})
	}
	return keys, errors.Join(errs...)
}

func readKey(path string) (PublicKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return PublicKey{}, err
	}
	return ParsePublicKey(data)
}

var clusterShape = regexp.MustCompile(`^[a-z0-9-]+$`)

// refresh looks at all files, and returns the clusters whose keys are others than before. Its cost
// is a stat for each cluster.
func (s *Sealer) refresh() (changed []wire.ClusterName, err error) {
	files, err := os.ReadDir(s.config.Dir)
	if err != nil {
		return nil, fmt.Errorf("list the keys of clusters: %w", err)
	}
	s.mu.Lock()
	former := maps.Clone(s.keys)
	s.mu.Unlock()
	seen := map[wire.ClusterName]bool{}
	for _, file := range files {
		name, isKey := strings.CutSuffix(file.Name(), publicSuffix)
		if !isKey {
			continue
		}
		if !clusterShape.MatchString(name) {
			s.config.Logger.Warn("file ignored: its name is not that of a cluster and .pub", "file", file.Name())
			continue
		}
		cluster := wire.ClusterName(name)
		seen[cluster] = true
		before, known := former[cluster]
		now := s.read(file.Name(), before)
		if known && now == before {
			continue
		}
		if now.key != nil && (before.key == nil || before.key.ID != now.key.ID) {
			changed = append(changed, cluster)
		}
		s.set(cluster, now)
	}
	for cluster, before := range former {
		if !seen[cluster] && !before.gone {
			s.config.Logger.Warn("the file with the key of a cluster is gone; its specs stay sealed to that key until the next start", "cluster", cluster)
			before.stamp, before.gone = filestamp.Stamp{}, true
			s.set(cluster, before)
		}
	}
	return changed, nil
}

func (s *Sealer) set(cluster wire.ClusterName, key clusterKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[cluster] = key
}

// read returns the key in a file, before if the file has not changed. A key that cannot be read
// leaves the former one in use.
func (s *Sealer) read(name string, before clusterKey) clusterKey {
	path := filepath.Join(s.config.Dir, name)
	stamp, err := keyfile.Stamp(path)
	if err == nil && stamp == before.stamp {
		return before
	}
	now := clusterKey{key: before.key}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	var key PublicKey
	if err == nil {
		now.stamp = stamp // not before: a file that becomes readable may have the same one
		key, err = ParsePublicKey(data)
	}
	if err != nil {
		if now.err = before.err; now.err == nil || now.err.Error() != err.Error() {
			s.config.Logger.Error("the key of a cluster cannot be used", "file", path, "former", before.key != nil, "error", err)
			now.err = err
		}
		return now
	}
	now.key = &key
	s.config.Logger.Info("key of a cluster read", "file", path, "key", key.ID)
	return now
}
