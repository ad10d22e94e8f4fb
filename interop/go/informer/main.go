// A SharedInformerFactory: its store follows the server, its handlers see every change, its lister answers from memory.
package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"capstan-interop/internal/check"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client := kubernetes.NewForConfigOrDie(check.Config())
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "go-informer-"},
	}, metav1.CreateOptions{})
	check.Must(err)
	maps := client.CoreV1().ConfigMaps(namespace.Name)
	create := func(name string) {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "x"}}}, metav1.CreateOptions{})
		check.Must(err)
	}
	create("early")

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace.Name))
	informer := factory.Core().V1().ConfigMaps()
	pods := factory.Core().V1().Pods().Informer()
	events := make(chan string, 100)
	name := func(object any) string {
		if gone, is := object.(cache.DeletedFinalStateUnknown); is {
			object = gone.Obj
		}
		return object.(*corev1.ConfigMap).Name
	}
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { events <- "add " + name(object) },
		UpdateFunc: func(_, object any) { events <- "update " + name(object) },
		DeleteFunc: func(object any) { events <- "delete " + name(object) },
	})
	check.Must(err)
	factory.Start(ctx.Done())
	synced := cache.WaitForCacheSync(ctx.Done(), informer.Informer().HasSynced, pods.HasSynced)
	check.That("the stores are in step", synced, "not in time")
	expect := func(wanted string) {
		select {
		case got := <-events:
			check.That(fmt.Sprintf("handlers see %q", wanted), got == wanted, got)
		case <-ctx.Done():
			check.That(fmt.Sprintf("handlers see %q", wanted), false, "not in time")
		}
	}
	expect("add early")
	create("late")
	expect("add late")
	_, err = maps.Patch(ctx, "late", types.StrategicMergePatchType, []byte(`{"data":{"a":"1"}}`), metav1.PatchOptions{})
	check.Must(err)
	expect("update late")
	found, err := informer.Lister().ConfigMaps(namespace.Name).List(labels.SelectorFromSet(labels.Set{"app": "x"}))
	check.Must(err)
	check.That("the lister answers from the store", len(found) == 2, found)
	got, err := informer.Lister().ConfigMaps(namespace.Name).Get("late")
	check.Must(err)
	check.That("the store has the newest", got.Data["a"] == "1", got)
	check.Must(maps.Delete(ctx, "late", metav1.DeleteOptions{}))
	expect("delete late")
	cancel()
	factory.Shutdown()
	check.That("the factory shuts down", true, nil)
}
