package baseline

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// ManifestWorks makes the writes of users and of a hub for works, without a hub.
type ManifestWorks struct {
	API      *API
	Prefix   string // of names
	Clusters []wire.ClusterName

	made []Answer
}

// Create makes n works of two ConfigMaps each, in turn for all clusters.
func (w *ManifestWorks) Create(ctx context.Context, n int) (time.Duration, error) {
	w.made = make([]Answer, n)
	return Each(n, func(i int) error {
		manifest := func(j int) string {
			return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%d","namespace":"default"},"data":%s}`, w.name(i), j, Data("1"))
		}
		made, err := w.API.Write(ctx, "POST", w.path(i), "", fmt.Appendf(nil,
			`{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":%q},"spec":{"workload":{"manifests":[%s,%s]}}}`,
			w.name(i), manifest(0), manifest(1)))
		w.made[i] = made
		return err
	})
}

// WriteStatus writes the status of every work, as a hub does: one PUT each. It must be called once.
func (w *ManifestWorks) WriteStatus(ctx context.Context, status func() workv1.ManifestWorkStatus) (time.Duration, error) {
	return Each(len(w.made), func(i int) error {
		text, err := json.Marshal(status())
		if err != nil {
			return err
		}
		_, err = w.API.Write(ctx, "PUT", w.path(i)+"/"+w.name(i)+"/status", "", fmt.Appendf(nil,
			`{"apiVersion":"work.open-cluster-management.io/v1","kind":"ManifestWork","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q},"status":%s}`,
			w.name(i), w.Clusters[i%len(w.Clusters)], w.made[i].Metadata.UID, w.made[i].Metadata.ResourceVersion, text))
		return err
	})
}

func (w *ManifestWorks) path(i int) string {
	return fmt.Sprintf("/apis/work.open-cluster-management.io/v1/namespaces/%s/manifestworks", w.Clusters[i%len(w.Clusters)])
}

func (w *ManifestWorks) name(i int) string { return fmt.Sprintf("%s-%d", w.Prefix, i) }
