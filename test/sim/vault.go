package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// vault is a model of the database in which the replicas of a source have their works. It is safe for concurrent use.
type vault struct {
	written func(kubeapi.Write) // told of each change of a work

	mu      sync.Mutex
	header  store.Header
	records map[types.UID]store.Record
	epoch   int64     // of the lease
	expires time.Time // the lease
	changed chan struct{}
}

func newVault(written func(kubeapi.Write)) *vault {
	return &vault{written: written, records: map[types.UID]store.Record{}, changed: make(chan struct{})}
}

// newer returns the records after a version, in order. The caller must hold v.mu.
func (v *vault) newer(after int64) []store.Record {
	var found []store.Record
	for _, r := range v.records {
		if r.Version > after {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b store.Record) int { return cmp.Compare(a.Version, b.Version) })
	return found
}

// notify wakes all who wait. The caller must hold v.mu.
func (v *vault) notify() {
	close(v.changed)
	v.changed = make(chan struct{})
}

// put stores r. The caller must hold v.mu.
func (v *vault) put(r store.Record) {
	before := workOfRecord(v.records[r.UID])
	v.records[r.UID] = r
	if after := workOfRecord(r); before != nil || after != nil {
		v.written(kubeapi.Write{Kind: workKind, User: author(before, after), Before: before, After: after})
	}
}

// author says who has made a change: people change what is wanted, and the source what is known of it.
func author(before, after *kubeapi.Object) string {
	if before == nil || after != nil && (before.GetGeneration() != after.GetGeneration() || (before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil)) {
		return people
	}
	return sourceProgram
}

// workOfRecord returns the work of a record, nil if it is removed.
func workOfRecord(r store.Record) *kubeapi.Object {
	if r.Removed || len(r.Data) == 0 {
		return nil
	}
	var data struct {
		Work map[string]any `json:"work"`
	}
	if err := json.Unmarshal(r.Data, &data); err != nil {
		panic(err)
	}
	o := &kubeapi.Object{Object: data.Work}
	o.SetResourceVersion(strconv.FormatInt(r.Version, 10))
	return o
}

// works returns the works of a cluster.
func (v *vault) works(cluster wire.ClusterName) []*kubeapi.Object {
	v.mu.Lock()
	defer v.mu.Unlock()
	var found []*kubeapi.Object
	for _, r := range v.newer(0) {
		if o := workOfRecord(r); o != nil && r.Namespace == string(cluster) {
			found = append(found, o)
		}
	}
	return found
}

// storeClient is the way of one program to a vault, as a [store.Shared].
type storeClient struct {
	vault *vault
	// ask returns how long a request takes, and what becomes of it.
	ask func(what string) (time.Duration, kubeapi.Outcome)

	mu    sync.Mutex
	epoch int64 // of the lease that the program has acquired; 0: none
}

var _ store.Shared = (*storeClient)(nil)

// request sends a request. It returns what is wrong before it has an effect, and what the client is told afterwards.
func (s *storeClient) request(ctx context.Context, what string) (before, after error) {
	delay, outcome := s.ask(what)
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return ctx.Err(), nil
	}
	switch outcome {
	case kubeapi.Lost, kubeapi.Overloaded:
		return store.ErrUnavailable, nil
	case kubeapi.Unanswered:
		return nil, store.ErrOutcomeUnknown
	}
	return nil, nil
}

// Open makes the vault, or reads it.
func (s *storeClient) Open(_ context.Context, _ wire.SourceID, initial store.Header, each func(store.Record) error) (store.Header, error) {
	s.vault.mu.Lock()
	defer s.vault.mu.Unlock()
	if s.vault.header.Identity == "" {
		s.vault.header = initial
	}
	s.vault.header.Version = max(s.vault.header.Version, initial.Version)
	for _, r := range s.vault.newer(0) {
		if !r.Removed {
			if err := each(r); err != nil {
				return store.Header{}, err
			}
		}
	}
	return s.vault.header, nil
}

// Update stores what change returns.
func (s *storeClient) Update(ctx context.Context, after int64, change store.ChangeFunc) error {
	failure, unknown := s.request(ctx, "update")
	if failure != nil {
		return failure
	}
	s.mu.Lock()
	epoch := s.epoch
	s.mu.Unlock()
	v := s.vault
	v.mu.Lock()
	defer v.mu.Unlock()
	if epoch > 0 && epoch != v.epoch {
		return store.ErrLeaseLost
	}
	h, records, err := change(v.header, v.newer(after))
	if err != nil || len(records) == 0 {
		return err
	}
	v.header = h
	for _, r := range records {
		v.put(r)
	}
	v.notify()
	return unknown
}

// Close does nothing.
func (s *storeClient) Close() error { return nil }

// Changes returns what is newer than a version.
func (s *storeClient) Changes(ctx context.Context, after int64) (store.Header, []store.Record, error) {
	failure, unknown := s.request(ctx, "changes")
	if failure != nil || unknown != nil {
		return store.Header{}, nil, store.ErrUnavailable
	}
	s.vault.mu.Lock()
	defer s.vault.mu.Unlock()
	return s.vault.header, s.vault.newer(after), nil
}

// Follow tells of each change.
func (s *storeClient) Follow(ctx context.Context, changed func(int64)) error {
	for {
		s.vault.mu.Lock()
		version, next := s.vault.header.Version, s.vault.changed
		s.vault.mu.Unlock()
		changed(version)
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

// Removed returns the removed works that are not confirmed.
func (s *storeClient) Removed(context.Context) ([]store.Record, error) {
	s.vault.mu.Lock()
	defer s.vault.mu.Unlock()
	return slices.DeleteFunc(s.vault.newer(0), func(r store.Record) bool { return !r.Removed || r.Confirmed }), nil
}

const (
	leaseTime   = 15 * time.Second
	leaseMargin = 3 * time.Second
	renewal     = 4 * time.Second
)

// Acquire waits for the lease.
func (s *storeClient) Acquire(ctx context.Context) (store.Lease, error) {
	v := s.vault
	for {
		sent := time.Now()
		failure, unknown := s.request(ctx, "acquire")
		v.mu.Lock()
		wait, next := time.Until(v.expires), v.changed
		if failure == nil && unknown == nil && wait <= 0 {
			v.epoch++
			v.expires = time.Now().Add(leaseTime)
			epoch := v.epoch
			v.mu.Unlock()
			s.mu.Lock()
			s.epoch = epoch
			s.mu.Unlock()
			return &tenure{client: s, epoch: epoch, until: sent.Add(leaseTime - leaseMargin), renewed: make(chan struct{})}, nil
		}
		v.mu.Unlock()
		select {
		case <-time.After(max(wait, time.Second)):
		case <-next: // it may have been released
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tenure is a [store.Lease] of a vault.
type tenure struct {
	client *storeClient
	epoch  int64

	mu      sync.Mutex
	until   time.Time // how long its holder may publish
	renewed chan struct{}
}

// Hold renews the lease until ctx ends.
func (t *tenure) Hold(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			t.renew(time.Now(), 0)
			return nil
		case <-time.After(renewal):
		}
		sent := time.Now()
		if failure, _ := t.client.request(ctx, "renew"); failure == nil && !t.renew(sent, leaseTime) {
			return store.ErrLeaseLost
		}
	}
}

// renew makes the lease last for a time from now on; 0 releases it. It reports whether the lease is still this one.
func (t *tenure) renew(sent time.Time, lasts time.Duration) bool {
	v := t.client.vault
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.epoch != t.epoch {
		return false
	}
	v.expires = time.Now().Add(lasts)
	if lasts == 0 {
		v.notify()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.until = sent.Add(lasts - leaseMargin)
	close(t.renewed)
	t.renewed = make(chan struct{})
	return true
}

// Wait waits while another program may hold the lease.
func (t *tenure) Wait(ctx context.Context) error {
	for {
		t.mu.Lock()
		valid, next := time.Now().Before(t.until), t.renewed
		t.mu.Unlock()
		if valid {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("wait for the lease: %w", ctx.Err())
		}
	}
}
