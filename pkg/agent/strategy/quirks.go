package strategy

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// quirks are the ways in which Update treats a kind unlike others. The zero value
// has none.
type quirks struct {
	// exact names top-level maps in which a key that the manifest does not declare
	// is drift.
	exact []string
	// injected are keys of exact maps that another actor fills in: neither compared
	// nor written to an existing object.
	injected map[string]bool
	// moreItems allows lists of objects to hold items of other actors. Their order is
	// free.
	moreItems bool
	// leave names top-level fields that are not written to an existing object.
	leave map[string]bool
	// bundles keeps the CA bundles that were injected into items of "webhooks".
	bundles bool
}

const (
	trustedBundleLabel  = "config.openshift.io/inject-trusted-cabundle"
	trustedBundleKey    = "ca-bundle.crt"
	serviceBundleNote   = "service.beta.openshift.io/inject-cabundle"
	serviceBundleKey    = "service-ca.crt"
	serviceAccountToken = "kubernetes.io/service-account-token"
)

// mayHaveMore says whether the live list may hold more than the declared items.
func (q *quirks) mayHaveMore(want []any) bool {
	return q.moreItems && !slices.ContainsFunc(want, func(item any) bool {
		_, isMap := item.(map[string]any)
		return !isMap
	})
}

// quirks of a manifest; none where the API server merges.
func (m *Manifest) quirks(live *unstructured.Unstructured) quirks {
	if m.Strategy == workv1.UpdateStrategyTypeServerSideApply {
		return quirks{}
	}
	return quirksOf(m.Desired, live)
}

// quirksOf gives the quirks for writing desired over live, which may be nil.
func quirksOf(desired, live *unstructured.Unstructured) quirks {
	switch desired.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Kind: "ConfigMap"}:
		return quirks{exact: []string{"data", "binaryData"}, injected: injectedKeys(desired, live)}
	case schema.GroupKind{Kind: "Secret"}:
		if desired.Object["type"] == serviceAccountToken {
			return quirks{} // the token controller adds keys
		}
		return quirks{exact: []string{"data"}}
	case schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Kind: "ServiceAccount"}:
		// Admission adds volumes and tolerations to pods, controllers add secrets to
		// service accounts.
		return quirks{moreItems: true}
	case schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:
		if desired.Object["aggregationRule"] != nil {
			return quirks{leave: map[string]bool{"rules": true}} // a controller's
		}
	case schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"},
		schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:
		return quirks{bundles: true}
	}
	return quirks{}
}

func injectedKeys(desired, live *unstructured.Unstructured) map[string]bool {
	keys := map[string]bool{}
	for _, obj := range []*unstructured.Unstructured{desired, live} {
		if obj == nil {
			continue
		}
		if obj.GetLabels()[trustedBundleLabel] == "true" {
			keys[trustedBundleKey] = true
		}
		if obj.GetAnnotations()[serviceBundleNote] == "true" {
			keys[serviceBundleKey] = true
		}
	}
	return keys
}

// keepBundles gives each webhook that declares no CA bundle the one that the
// webhook of its name has now.
func keepBundles(next, live map[string]any) {
	bundles := map[string]any{}
	eachWebhook(live, func(name string, config map[string]any) {
		if bundle, ok := config["caBundle"]; ok {
			bundles[name] = bundle
		}
	})
	eachWebhook(next, func(name string, config map[string]any) {
		if bundle, ok := bundles[name]; ok && config["caBundle"] == nil {
			config["caBundle"] = bundle
		}
	})
}

func eachWebhook(configuration map[string]any, do func(name string, clientConfig map[string]any)) {
	webhooks, _ := configuration["webhooks"].([]any)
	for _, item := range webhooks {
		webhook, _ := item.(map[string]any)
		name, _ := webhook["name"].(string)
		if config, ok := webhook["clientConfig"].(map[string]any); ok {
			do(name, config)
		}
	}
}
