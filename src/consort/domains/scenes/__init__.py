"""Dense prediction in scenes: segmentation, depth, normals, edges, key points."""

from consort.core.plugins import Plugin

plugin = Plugin(
    datasets={
        "coco": "consort.domains.scenes.coco:coco",
        "nyud": "consort.domains.scenes.nyud:nyud",
        "pascal_context": "consort.domains.scenes.pascal:pascal_context",
        "synthetic_scenes": "consort.domains.scenes.synthetic.scenes:synthetic_scenes",
        "taskonomy": "consort.domains.scenes.taskonomy:taskonomy",
    },
    models={
        "conv_pyramid": "consort.domains.scenes.models.pyramid:ConvPyramid",
        "resnet_pyramid": "consort.domains.scenes.models.backbones:ResNetPyramid",
        "swin_pyramid": "consort.domains.scenes.models.backbones:SwinPyramid",
    },
    tasks={
        "depth": "consort.domains.scenes.tasks.geometry:Depth",
        "edges": "consort.domains.scenes.tasks.edges:Edges",
        "instances": "consort.domains.scenes.tasks.panoptic:Instances",
        "keypoints": "consort.domains.scenes.tasks.keypoints:KeyPoints",
        "normals": "consort.domains.scenes.tasks.geometry:Normals",
        "panoptic": "consort.domains.scenes.tasks.panoptic:Panoptic",
        "saliency": "consort.domains.scenes.tasks.segmentation:Saliency",
        "segmentation": "consort.domains.scenes.tasks.segmentation:Segmentation",
    },
    augmentations={"scenes": "consort.domains.scenes.augment:varied"},
)
