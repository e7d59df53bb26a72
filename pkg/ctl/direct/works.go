package direct

import (
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/ctl/wrap"
	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/wire"
)

// Works returns the ManifestWorks among manifests for a source, with their UIDs. cluster is the
// namespace of works that name none. The error names each fault: another kind, unknown and invalid fields, a
// work without a cluster or of another one than cluster, and a work that is there twice.
func Works(manifests []wrap.Manifest, id wire.SourceID, topics wire.SourceTopics, cluster string) ([]*workv1.ManifestWork, error) {
	var works []*workv1.ManifestWork
	var errs []error
	seen := map[string]bool{}
	for i := range manifests {
		work, err := decode(&manifests[i], cluster)
		if err == nil {
			work.UID = wire.UIDFor(id, work.Namespace, work.Name)
			if seen[string(work.UID)] {
				err = fmt.Errorf("the work %s/%s is there twice", work.Namespace, work.Name)
			}
			seen[string(work.UID)] = true
		}
		if err == nil {
			err = source.Check(work, topics)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", manifests[i].Origin, err))
			continue
		}
		works = append(works, work)
	}
	if len(errs) == 0 && len(works) == 0 {
		return nil, errors.New("the files have no ManifestWork")
	}
	return works, errors.Join(errs...)
}

func decode(m *wrap.Manifest, cluster string) (*workv1.ManifestWork, error) {
	if m.Object.GetKind() != "ManifestWork" || m.Object.GroupVersionKind().Group != workv1.GroupName {
		return nil, fmt.Errorf("%s %s is no ManifestWork: workctl wrap makes one of it", m.Object.GetKind(), m.Object.GetName())
	}
	data, err := json.Marshal(m.Object.Object)
	if err != nil {
		return nil, err
	}
	work := &workv1.ManifestWork{}
	strict, err := kjson.UnmarshalStrict(data, work)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	switch {
	case work.Namespace == "" && cluster == "":
		return nil, fmt.Errorf("the work %s has no cluster: set metadata.namespace, or -n", work.Name)
	case work.Namespace == "":
		work.Namespace = cluster
	case cluster != "" && work.Namespace != cluster:
		return nil, fmt.Errorf("the work %s is in namespace %s, and -n is %s", work.Name, work.Namespace, cluster)
	}
	meta := work.ObjectMeta
	work.ObjectMeta.Reset()
	work.Namespace, work.Name, work.Labels, work.Annotations = meta.Namespace, meta.Name, meta.Labels, meta.Annotations
	work.Status = workv1.ManifestWorkStatus{}
	return work, nil
}
