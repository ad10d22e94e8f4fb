// The textbook watch: it prints added, modified, deleted, bookmark and error events, and starts again where it ended.
package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"capstan-interop/internal/check"
)

func main() {
	ctx := context.Background()
	client := kubernetes.NewForConfigOrDie(check.Config())
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "go-watch-"},
	}, metav1.CreateOptions{})
	check.Must(err)
	maps := client.CoreV1().ConfigMaps(namespace.Name)
	create := func(name string) {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		check.Must(err)
	}

	create("before")
	yes := true
	watcher, err := maps.Watch(ctx, metav1.ListOptions{
		AllowWatchBookmarks: true, SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	check.Must(err)
	next := func(watcher watch.Interface) string {
		event, open := <-watcher.ResultChan()
		if !open {
			return "closed"
		}
		switch object := event.Object.(type) {
		case *corev1.ConfigMap:
			return fmt.Sprint(event.Type, " ", object.Name)
		case *metav1.Status:
			return fmt.Sprint(event.Type, " ", object.Reason)
		default:
			return fmt.Sprintf("%v %T", event.Type, object)
		}
	}
	expect := func(watcher watch.Interface, wanted string) {
		got := next(watcher)
		// A bookmark may come at any time; that it comes at all is asked for by name.
		for got == "BOOKMARK " && wanted != got {
			got = next(watcher)
		}
		check.That(fmt.Sprintf("%q comes", wanted), got == wanted, got)
	}

	expect(watcher, "ADDED before")
	expect(watcher, "BOOKMARK ")
	create("after")
	expect(watcher, "ADDED after")
	_, err = maps.Patch(ctx, "after", types.MergePatchType, []byte(`{"data":{"a":"1"}}`), metav1.PatchOptions{})
	check.Must(err)
	expect(watcher, "MODIFIED after")
	check.Must(maps.Delete(ctx, "after", metav1.DeleteOptions{}))
	expect(watcher, "DELETED after")
	watcher.Stop()

	list, err := maps.List(ctx, metav1.ListOptions{})
	check.Must(err)
	create("between")
	seconds := int64(1)
	watcher, err = maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: &seconds})
	check.Must(err)
	expect(watcher, "ADDED between")
	expect(watcher, "closed")

	_, err = maps.Watch(ctx, metav1.ListOptions{ResourceVersion: "nonsense"})
	check.That("a watch from nonsense is refused", err != nil && strings.Contains(err.Error(), "invalid syntax"), err)
	// One revision before anything was created has been compacted or is served: both are right, a wrong answer is neither.
	watcher, err = maps.Watch(ctx, metav1.ListOptions{ResourceVersion: "1", TimeoutSeconds: &seconds})
	if err == nil {
		got := next(watcher)
		check.That("a watch from long ago is served or expired", got == "ADDED before" || got == "ERROR Expired", got)
	} else {
		check.That("a watch from long ago is served or expired", apierrors.IsResourceExpired(err) || apierrors.IsGone(err), err)
	}
}
