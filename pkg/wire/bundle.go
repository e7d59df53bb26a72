package wire

import (
	"encoding/json"
	"errors"
	"fmt"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Bundle is the data of a spec event (docs/protocol.md, Data).
type Bundle struct {
	Manifests       []workv1.Manifest             `json:"manifests"`
	DeleteOption    *workv1.DeleteOption          `json:"deleteOption,omitempty"`
	ManifestConfigs []workv1.ManifestConfigOption `json:"manifestConfigs,omitempty"`
	// Executer is the work's executor; the spelling is the protocol's.
	Executer *workv1.ManifestWorkExecutor `json:"executer,omitempty"`
}

// NewBundle returns the bundle of spec. It shares memory with spec.
func NewBundle(spec *workv1.ManifestWorkSpec) *Bundle {
	return &Bundle{
		Manifests:       spec.Workload.Manifests,
		DeleteOption:    spec.DeleteOption,
		ManifestConfigs: spec.ManifestConfigs,
		Executer:        spec.Executor,
	}
}

// WorkSpec returns the spec in b. It shares memory with b.
func (b *Bundle) WorkSpec() workv1.ManifestWorkSpec {
	return workv1.ManifestWorkSpec{
		Workload:        workv1.ManifestsTemplate{Manifests: b.Manifests},
		DeleteOption:    b.DeleteOption,
		ManifestConfigs: b.ManifestConfigs,
		Executor:        b.Executer,
	}
}

// maxInvalid is how many invalid manifests an error names.
const maxInvalid = 50

// Validate returns an error for bundles that an agent refuses before it applies anything: without
// manifests, too large, or with manifests that do not identify an object (docs/protocol.md, Refused
// specs). The error contains the indices of the first invalid manifests.
func (b *Bundle) Validate() error {
	if len(b.Manifests) == 0 {
		return errors.New("manifests should not be empty")
	}
	if n := len(b.Manifests); n > MaxManifests {
		return fmt.Errorf("%d manifests exceed the limit of %d; split the work", n, MaxManifests)
	}
	size := 0
	for i := range b.Manifests {
		size += len(b.Manifests[i].Raw)
	}
	if size > workv1.MaxManifestsSize {
		return fmt.Errorf("the size of manifests is %d bytes which exceeds the %d limit", size, workv1.MaxManifestsSize)
	}
	var errs []error
	for i := range b.Manifests {
		if err := validateManifest(b.Manifests[i].Raw); err != nil {
			if len(errs) == maxInvalid {
				errs = append(errs, errors.New("and others"))
				break
			}
			errs = append(errs, fmt.Errorf("manifest %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func validateManifest(raw []byte) error {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	var syntax *json.SyntaxError
	var mistyped *json.UnmarshalTypeError
	switch err := json.Unmarshal(raw, &object); {
	case errors.As(err, &syntax):
		return errors.New("not JSON")
	case errors.As(err, &mistyped) && mistyped.Field != "":
		return fmt.Errorf("field %s must not be a %s", mistyped.Field, mistyped.Value)
	case errors.As(err, &mistyped):
		return fmt.Errorf("want a Kubernetes object, got a %s", mistyped.Value)
	case err != nil:
		return errors.New("want a Kubernetes object")
	case object.APIVersion == "":
		return errors.New("apiVersion must be set in manifest")
	case object.Kind == "":
		return errors.New("kind must be set in manifest")
	case object.Metadata.GenerateName != "":
		return errors.New("generateName must not be set in manifest")
	case object.Kind == "List" && object.Metadata.Name == "":
		return errors.New("a List must not be a manifest: give its items as manifests of their own")
	case object.Metadata.Name == "":
		return errors.New("name must be set in manifest")
	}
	return nil
}
