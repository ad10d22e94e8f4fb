// Prints what only Go knows of the built-in types: the Go type of every field, and whether a zero value is left out of its JSON.
//
//	go run . > gotypes.txt
//	cargo xtask codegen --from DIR --go-types gotypes.txt
//
// One field a line: the type's OpenAPI name, the field's JSON name, "omitempty", "omitzero", both with a comma, or "-", and the Go type.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// openAPIName turns "k8s.io/api/core/v1" and "Pod" into "io.k8s.api.core.v1.Pod".
func openAPIName(t reflect.Type) string {
	host, path, _ := strings.Cut(t.PkgPath(), "/")
	parts := strings.Split(host, ".")
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ".") + "." + strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

type facts map[string]map[string]string

// add records t, if it is a struct of Kubernetes', and every type that it uses.
func (f facts) add(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		f.add(t.Elem())
		return
	case reflect.Map:
		f.add(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	name := openAPIName(t)
	if !strings.HasPrefix(name, "io.k8s.") || f[name] != nil {
		return
	}
	f[name] = map[string]string{}
	f.fields(name, t)
}

func (f facts) fields(name string, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, ok := field.Tag.Lookup("json")
		if !ok || tag == "-" {
			continue
		}
		parts := strings.Split(tag, ",")
		if parts[0] == "" {
			// Inlined: its fields are the outer type's own.
			f.fields(name, field.Type)
			continue
		}
		omit := []string{}
		for _, option := range parts[1:] {
			if option == "omitempty" || option == "omitzero" {
				omit = append(omit, option)
			}
		}
		if len(omit) == 0 {
			omit = []string{"-"}
		}
		f[name][parts[0]] = strings.Join(omit, ",") + "\t" + field.Type.String()
		f.add(field.Type)
	}
}

func main() {
	_ = apiextensions.AddToScheme(scheme.Scheme)
	_ = apiregistration.AddToScheme(scheme.Scheme)
	f := facts{}
	for _, t := range scheme.Scheme.AllKnownTypes() {
		f.add(t)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	names := []string{}
	for name := range f {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fields := []string{}
		for field := range f[name] {
			fields = append(fields, field)
		}
		sort.Strings(fields)
		for _, field := range fields {
			fmt.Fprintf(out, "%s\t%s\t%s\n", name, field, f[name][field])
		}
	}
}
