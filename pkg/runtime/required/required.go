// Package required checks that a Config has the fields that its constructor needs:
//
//	errs = append(errs, required.Fields(cfg, "Cluster", "Client"))
package required

import (
	"errors"
	"fmt"
	"reflect"
)

// Fields returns an error for each named field of the struct config that has its zero value; nil if
// there is none. It panics if config has no such field.
func Fields(config any, names ...string) error {
	value := reflect.Indirect(reflect.ValueOf(config))
	var errs []error
	for _, name := range names {
		if value.FieldByName(name).IsZero() {
			errs = append(errs, fmt.Errorf("%s is required", name))
		}
	}
	return errors.Join(errs...)
}
