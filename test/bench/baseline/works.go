package baseline

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

const (
	records = "/apis/work.open-cluster-management.io/v1/appliedmanifestworks"
	hash    = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// Works makes the writes that an agent makes for works of ConfigMaps, without an agent.
type Works struct {
	API       *API
	Namespace string
	Prefix    string // of names; the agent's are others
	Objects   int    // a work

	records []object
	maps    []object
}

type object struct{ uid, version string }

// Create makes, for each of n works, the AppliedManifestWork, its ConfigMaps, and the patch of its
// status that names them: Objects + 2 requests a work.
func (w *Works) Create(ctx context.Context, n int) (time.Duration, error) {
	w.records, w.maps = make([]object, n), make([]object, n*w.Objects)
	return Each(n, func(i int) error {
		name := w.record(i)
		record, err := w.API.Write(ctx, "POST", records+"?fieldManager=work-agent", "", fmt.Appendf(nil,
			`{"apiVersion":"work.open-cluster-management.io/v1","kind":"AppliedManifestWork","metadata":{"name":%q,`+
				`"labels":{"cloudevents.open-cluster-management.io/originalsource":"bench"},"annotations":{"workwire.dev/uid":%q,"workwire.dev/intended":%q},`+
				`"finalizers":["cluster.open-cluster-management.io/applied-manifest-work-cleanup"]},"spec":{"hubHash":%q,"agentID":"none","manifestWorkName":%q}}`,
			name, uuid.NewString(), w.intent(i), hash, name))
		if err != nil {
			return err
		}
		w.records[i] = object{record.Metadata.UID, record.Metadata.ResourceVersion}
		var resources []string
		for j := range w.Objects {
			made, err := w.API.Write(ctx, "POST", w.path("")+"?fieldManager=work-agent&fieldValidation=Ignore", "", w.body(i, j, "1"))
			if err != nil {
				return err
			}
			w.maps[i*w.Objects+j] = object{made.Metadata.UID, made.Metadata.ResourceVersion}
			resources = append(resources, fmt.Sprintf(`{"group":"","version":"v1","resource":"configmaps","namespace":%q,"name":%q,"uid":%q}`,
				w.Namespace, w.name(i, j), made.Metadata.UID))
		}
		patched, err := w.API.Write(ctx, "PATCH", records+"/"+name+"/status?fieldManager=work-agent", JSONPatch, fmt.Appendf(nil,
			`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"add","path":"/status","value":{}},`+
				`{"op":"add","path":"/status/appliedResources","value":[%s]},{"op":"add","path":"/status/transitions","value":%q}]`,
			record.Metadata.UID, record.Metadata.ResourceVersion, strings.Join(resources, ","), strings.Repeat("t", 200)))
		w.records[i].version = patched.Metadata.ResourceVersion
		return err
	})
}

// Update changes every ConfigMap by a PUT.
func (w *Works) Update(ctx context.Context) (time.Duration, error) {
	return Each(len(w.records), func(i int) error {
		for j := range w.Objects {
			put, err := w.API.Write(ctx, "PUT", w.path(w.name(i, j))+"?fieldManager=work-agent&fieldValidation=Ignore", "", w.body(i, j, "2"))
			if err != nil {
				return err
			}
			w.maps[i*w.Objects+j].version = put.Metadata.ResourceVersion
		}
		return nil
	})
}

// Delete deletes the AppliedManifestWorks, their ConfigMaps, and takes off the
// finalizers: Objects + 2 requests a work.
func (w *Works) Delete(ctx context.Context) (time.Duration, error) {
	return Each(len(w.records), func(i int) error {
		name := w.record(i)
		going, err := w.API.Write(ctx, "DELETE", records+"/"+name, "", fmt.Appendf(nil, `{"preconditions":{"uid":%q}}`, w.records[i].uid))
		if err != nil {
			return err
		}
		for j := range w.Objects {
			known := w.maps[i*w.Objects+j]
			if _, err := w.API.Write(ctx, "DELETE", w.path(w.name(i, j)), "", fmt.Appendf(nil,
				`{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background","preconditions":{"uid":%q,"resourceVersion":%q}}`, known.uid, known.version)); err != nil {
				return err
			}
		}
		_, err = w.API.Write(ctx, "PATCH", records+"/"+name+"?fieldManager=work-agent", MergePatch, fmt.Appendf(nil,
			`{"metadata":{"uid":%q,"resourceVersion":%q,"finalizers":[]}}`, w.records[i].uid, going.Metadata.ResourceVersion))
		return err
	})
}

// Creates makes n plain ConfigMaps, and removes them again, and gives how long the creates took.
func (w *Works) Creates(ctx context.Context, n int) (time.Duration, error) {
	took, err := Each(n, func(i int) error {
		_, err := w.API.Write(ctx, "POST", w.path(""), "", fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-plain-%d"},"data":{"k":"v"}}`, w.Prefix, i))
		return err
	})
	if err != nil {
		return 0, err
	}
	_, err = Each(n, func(i int) error {
		_, err := w.API.Write(ctx, "DELETE", w.path(fmt.Sprintf("%s-plain-%d", w.Prefix, i)), "", nil)
		return err
	})
	return took, err
}

func (w *Works) path(name string) string {
	path := "/api/v1/namespaces/" + w.Namespace + "/configmaps"
	if name != "" {
		path += "/" + name
	}
	return path
}

func (w *Works) record(i int) string { return fmt.Sprintf("%s-%s-%d", hash, w.Prefix, i) }

func (w *Works) name(i, j int) string { return fmt.Sprintf("%s-%d-%d", w.Prefix, i, j) }

func (w *Works) intent(i int) string {
	var names []string
	for j := range w.Objects {
		names = append(names, w.name(i, j))
	}
	text, _ := json.Marshal(map[string]map[string][]string{"v1/configmaps": {w.Namespace: names}}) // plain strings
	return string(text)
}

// body is a ConfigMap as an agent applies it, with value as its content.
func (w *Works) body(i, j int, value string) []byte {
	metadata := fmt.Sprintf(`"name":%q,"namespace":%q,"labels":{"bench":"baseline"},`+
		`"ownerReferences":[{"apiVersion":"work.open-cluster-management.io/v1","kind":"AppliedManifestWork","name":%q,"uid":%q}]`,
		w.name(i, j), w.Namespace, w.record(i), w.records[i].uid)
	if known := w.maps[i*w.Objects+j]; known.uid != "" {
		metadata += fmt.Sprintf(`,"uid":%q,"resourceVersion":%q`, known.uid, known.version)
	}
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s},"data":%s}`, metadata, Data(value))
}

// Data is the data of the ConfigMaps that are measured, as JSON.
func Data(value string) string {
	return fmt.Sprintf(`{"config.yaml":"replicas: 3\nlog: info\nlisten: 0.0.0.0:8080\n","value":%q}`, value)
}
