package about

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// DefaultInterval is that of [Config].
	DefaultInterval = 5 * time.Minute
	// perNode lengthens the time between two lists of the nodes of a large cluster. A node has 10 to 20 KB,
	// and its status changes all the time: a watch of nodes costs more than these lists.
	perNode = time.Second
	// pageSize is the number of nodes that are held in memory at a time.
	pageSize = 100
	// maxObjects is the maximum number of claims, and of properties, that are read.
	maxObjects = 500
)

// Config configures [Run].
type Config struct {
	// Client reads the cluster; required.
	Client rest.Interface
	// Interval is the time between two readings, and so between two changes. Default 5 min.
	Interval time.Duration
	// Changed is called with what the cluster says of itself, when that has changed; required.
	Changed func(*wire.About)
	// Logger; required.
	Logger *slog.Logger
}

// Run reads what the cluster says of itself until ctx ends. A reading that fails changes nothing.
func Run(ctx context.Context, config Config) error {
	r := reader{client: config.Client}
	interval := cmp.Or(config.Interval, DefaultInterval)
	var last *wire.About
	var lastErr string
	for {
		about, err := r.read(ctx, time.Now())
		if err != nil && ctx.Err() == nil && err.Error() != lastErr {
			config.Logger.Warn("reading what the cluster says of itself failed, or left something out", "error", err)
		}
		if lastErr = ""; err != nil {
			lastErr = err.Error()
		}
		if about != nil && !reflect.DeepEqual(about, last) {
			last = about
			config.Changed(about)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil
		}
	}
}

// reader reads a cluster.
type reader struct {
	client  rest.Interface
	nodes   nodes
	nodesAt time.Time // when the nodes are to be listed next
}

// read returns what the cluster says of itself; nil if that is not known. The error may be about what is left out.
func (r *reader) read(ctx context.Context, now time.Time) (*wire.About, error) {
	var f facts
	var version struct{ GitVersion string }
	if _, err := r.get(ctx, &version, nil, "/version"); err != nil {
		return nil, err
	}
	f.version = version.GitVersion
	var err error
	if f.claims, err = r.list(ctx, "/apis/cluster.open-cluster-management.io/v1alpha1/clusterclaims"); err != nil {
		return nil, err
	}
	if f.id, err = r.id(ctx); err != nil {
		return nil, err
	}
	if !now.Before(r.nodesAt) {
		if r.nodes, err = r.readNodes(ctx); err != nil {
			return nil, err
		}
		r.nodesAt = now.Add(time.Duration(r.nodes.count) * perNode)
	}
	f.nodes = r.nodes
	return describe(f)
}

// id returns the id of the cluster: that of the About API, or else the UID of the namespace kube-system.
func (r *reader) id(ctx context.Context) (string, error) {
	properties, err := r.list(ctx, "/apis/about.k8s.io/v1alpha1/clusterproperties")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"cluster.clusterset.k8s.io", clusterv1.ClaimID} {
		for _, p := range properties {
			if p.Name == name && p.Value != "" {
				return p.Value, nil
			}
		}
	}
	var namespace struct{ Metadata struct{ UID string } }
	_, err = r.get(ctx, &namespace, nil, "/api/v1/namespaces/kube-system")
	return namespace.Metadata.UID, err
}

// list returns the objects of a kind that has spec.value; none if the kind is not served, or may not be read.
func (r *reader) list(ctx context.Context, path string) ([]wire.Claim, error) {
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ Value string }
		}
	}
	_, err := r.get(ctx, &list, map[string]string{"limit": strconv.Itoa(maxObjects)}, path)
	var claims []wire.Claim
	for _, item := range list.Items {
		claims = append(claims, wire.Claim{Name: item.Metadata.Name, Value: item.Spec.Value})
	}
	return claims, err
}

func (r *reader) readNodes(ctx context.Context) (n nodes, err error) {
	parameters := map[string]string{"limit": strconv.Itoa(pageSize)}
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []node
		}
		found, err := r.get(ctx, &page, parameters, "/api/v1/nodes")
		if err != nil || !found {
			return nodes{}, err
		}
		for _, item := range page.Items {
			n.add(item)
		}
		if page.Metadata.Continue == "" {
			return n, nil
		}
		parameters["continue"] = page.Metadata.Continue
	}
}

// get reads path into a value. It returns false if it does not exist, or may not be read.
func (r *reader) get(ctx context.Context, into any, parameters map[string]string, path string) (bool, error) {
	request := r.client.Get().AbsPath(path).SetHeader("Accept", "application/json")
	for name, value := range parameters {
		request.Param(name, value)
	}
	text, err := request.DoRaw(ctx)
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}
