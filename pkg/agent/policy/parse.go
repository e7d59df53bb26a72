package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/workwire/workwire/pkg/runtime/yamlfile"
)

// What a pattern may be. A resource is not a kind: "Secret" would match nothing, and so deny nothing.
var (
	namePattern     = regexp.MustCompile(`^([a-z0-9][a-z0-9.-]*\*?|\*)$`)
	executorPattern = regexp.MustCompile(`^([a-z0-9][a-z0-9-]*\*?|\*)/([a-z0-9][a-z0-9.-]*\*?|\*)$`)
	resourcePattern = regexp.MustCompile(`^(\*|[a-z0-9][a-z0-9-]*)(\.[a-z0-9][a-z0-9.-]*)?$`)
)

// Parse returns the policy in a file. It refuses unknown fields, fields without a value, patterns that
// match nothing, and a file without any rule: what is cut short or misspelled must not allow more.
func Parse(data []byte) (*Policy, error) {
	text, err := yamlfile.ToJSON(data)
	if err != nil {
		return nil, err
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, errors.New("it must be a map of rules, such as requireExecutor: true")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(rules, name) { // the decoder does not tell upper and lower case apart
			return nil, fmt.Errorf("unknown field %q; the rules are %s", name, strings.Join(rules, ", "))
		}
		if bytes.Equal(fields[name], []byte("null")) {
			return nil, fmt.Errorf("%s has no value; write [] to allow none, or leave the field out", name)
		}
	}
	p := &Policy{}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, err
	}
	return p, p.validate(fields)
}

func (p *Policy) validate(fields map[string]json.RawMessage) error {
	var errs []error
	for _, rule := range []struct {
		name     string
		patterns []string
		form     *regexp.Regexp
		want     string
	}{
		{AllowedExecutors, p.AllowedExecutors, executorPattern, "NAMESPACE/NAME; each may end with *"},
		{AllowedResources, p.AllowedResources, resourcePattern, "a resource as RESOURCE.GROUP, such as configmaps or deployments.apps; *.GROUP for all of a group"},
		{DeniedResources, p.DeniedResources, resourcePattern, "a resource as RESOURCE.GROUP, such as secrets or roles.rbac.authorization.k8s.io; *.GROUP for all of a group"},
		{AllowedNamespaces, p.AllowedNamespaces, namePattern, "a name, which may end with *"},
		{AllowedClusterResources, p.AllowedClusterResources, resourcePattern, "a resource as RESOURCE.GROUP, such as namespaces"},
	} {
		for _, pattern := range rule.patterns {
			if !rule.form.MatchString(pattern) {
				errs = append(errs, fmt.Errorf("%s: %q must be %s", rule.name, pattern, rule.want))
			}
		}
	}
	if _, set := fields[RequireExecutor]; set && !p.RequireExecutor && p.AllowedExecutors != nil {
		errs = append(errs, fmt.Errorf("%s: false contradicts %s, which refuses works without an executor; leave one of them out", RequireExecutor, AllowedExecutors))
	}
	if len(errs) == 0 && !p.restricts() {
		errs = append(errs, errors.New("it has no rule; to allow everything, leave out the flag --policy"))
	}
	return errors.Join(errs...)
}

// restricts reports whether p has a rule.
func (p *Policy) restricts() bool { return !reflect.ValueOf(*p).IsZero() }
